"""What the Fn API asks for becomes an address, if the DoFn declares it."""

from typing import Any, TypeAlias

import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.portability import common_urns, python_urns
from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2

from beam_spark_runner.core.errors import FnApiProtocolError
from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.state.backend import (
    Bag,
    Cell,
    ListRange,
    MapEntries,
    MapKeys,
    MapValues,
)
from beam_spark_runner.state.memory import MemoryState
from beam_spark_runner.state.requests import StateRequests, declared_states, value_counter

StateKey: TypeAlias = beam_fn_api_pb2.StateKey
StateRequest = beam_fn_api_pb2.StateRequest
CELL = {"transform_id": "count", "user_state_id": "", "window": b"w", "key": b"k"}


def descriptor() -> beam_fn_api_pb2.ProcessBundleDescriptor:
    protocols = common_urns.user_state
    spec = beam_runner_api_pb2.StateSpec
    urn = beam_runner_api_pb2.FunctionSpec
    payload = beam_runner_api_pb2.ParDoPayload(
        state_specs={
            "bag": spec(
                bag_spec=beam_runner_api_pb2.BagStateSpec(element_coder_id="int"),
                protocol=urn(urn=protocols.BAG.urn),
            ),
            "old": spec(bag_spec=beam_runner_api_pb2.BagStateSpec(element_coder_id="int")),
            "map": spec(
                multimap_spec=beam_runner_api_pb2.MultimapStateSpec(
                    key_coder_id="int", value_coder_id="int"
                ),
                protocol=urn(urn=protocols.MULTIMAP.urn),
            ),
            "list": spec(
                ordered_list_spec=beam_runner_api_pb2.OrderedListStateSpec(element_coder_id="int"),
                protocol=urn(urn=protocols.ORDERED_LIST.urn),
            ),
        }
    )
    made = beam_fn_api_pb2.ProcessBundleDescriptor()
    made.transforms["count"].spec.urn = common_urns.primitives.PAR_DO.urn
    made.transforms["count"].spec.payload = payload.SerializeToString()
    made.transforms["other"].spec.urn = common_urns.primitives.FLATTEN.urn
    made.coders["int"].CopyFrom(
        beam_runner_api_pb2.Coder(spec=urn(urn=common_urns.coders.VARINT.urn))
    )
    return made


def requests(page_bytes: int = 1 << 20) -> StateRequests:
    declared = declared_states(descriptor())
    backend = MemoryState(value_counter(descriptor(), declared), page_bytes=page_bytes)
    return StateRequests(backend, declared, {TransformId("count"): "Count/ParDo"})


def key(kind: str, state: str, **more: Any) -> StateKey:
    message = getattr(StateKey(), kind)
    fields = {**CELL, "user_state_id": state, **more}
    return StateKey(**{kind: type(message)(**fields)})


@pytest.mark.parametrize(
    ("asked", "address"),
    [
        (key("bag_user_state", "bag"), Bag),
        (key("bag_user_state", "old"), Bag),
        (key("multimap_keys_user_state", "map"), MapKeys),
        (key("multimap_entries_user_state", "map"), MapEntries),
        (key("multimap_user_state", "map", map_key=b"m"), lambda cell: MapValues(cell, b"m")),
        (
            key("ordered_list_user_state", "list", range={"start": -5, "end": 7}),
            lambda cell: ListRange(cell, -5, 7),
        ),
    ],
)
def test_every_kind_of_user_state(asked: StateKey, address: Any) -> None:
    name = getattr(asked, asked.WhichOneof("type")).user_state_id
    assert requests().address(asked) == address(Cell("count", name, b"w", b"k"))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (key("bag_user_state", "sum"), "Count/ParDo: .* 'sum', which the DoFn does not declare"),
        (key("bag_user_state", "bag", transform_id="other"), "other: .* does not declare"),
        (key("bag_user_state", "map"), "Count/ParDo: .* 'map' by .*bag.*, but .*multimap"),
        (key("ordered_list_user_state", "bag"), "'bag' by .*ordered_list.*, but .*bag"),
        (StateKey(runner=StateKey.Runner(key=b"x")), "of kind runner"),
        (StateKey(), "of kind None"),
    ],
)
def test_what_is_not_declared(asked: StateKey, message: str) -> None:
    with pytest.raises(FnApiProtocolError, match=message):
        requests().get(asked)
    answer = requests().answer(
        StateRequest(id="7", state_key=asked, clear=beam_fn_api_pb2.StateClearRequest())
    )
    assert answer.id == "7"
    assert answer.error
    assert answer.WhichOneof("response") is None


def test_requests_of_the_state_service() -> None:
    asked = requests(page_bytes=1)
    bag = key("bag_user_state", "bag")
    for data in (b"\x01", b"\x02"):
        append = beam_fn_api_pb2.StateAppendRequest(data=data)
        answer = asked.answer(StateRequest(id=str(data), state_key=bag, append=append))
        assert (answer.id, answer.error, answer.WhichOneof("response")) == (
            str(data),
            "",
            "append",
        )
    first = asked.answer(StateRequest(state_key=bag, get=beam_fn_api_pb2.StateGetRequest()))
    assert first.get.data == b"\x01"
    get = beam_fn_api_pb2.StateGetRequest(continuation_token=first.get.continuation_token)
    second = asked.answer(StateRequest(state_key=bag, get=get))
    assert (second.get.data, second.get.continuation_token) == (b"\x02", b"")
    clear = beam_fn_api_pb2.StateClearRequest()
    answer = asked.answer(StateRequest(state_key=bag, clear=clear))
    assert answer.WhichOneof("response") == "clear"
    assert asked.get(bag).data == b""
    assert "unknown kind" in asked.answer(StateRequest(state_key=bag)).error


def test_entries_of_a_map_say_how_many_values_there_are() -> None:
    asked = requests()
    encode = VarIntCoder().get_impl().encode_nested
    values = key("multimap_user_state", "map", map_key=encode(300))
    asked.append(values, encode(1) + encode(1000))
    asked.append(values, encode(3))
    entries = asked.get(key("multimap_entries_user_state", "map")).data
    assert entries == encode(300) + b"\x00\x00\x00\x03" + encode(1) + encode(1000) + encode(3)


@pytest.mark.parametrize(
    "data", [b"\x80", b"\xff" * 11, b"\1\x80"], ids=["half a value", "eleven bytes", "one more"]
)
def test_bytes_that_are_no_values_of_a_map(data: bytes) -> None:
    asked = requests()
    append = beam_fn_api_pb2.StateAppendRequest(data=data)
    values = key("multimap_user_state", "map", map_key=b"m")
    assert "no encoded values" in asked.answer(StateRequest(state_key=values, append=append)).error
    assert asked.get(key("multimap_keys_user_state", "map")).data == b""


@pytest.mark.parametrize("urn", ["beam:coder:javasdk:v1", python_urns.PICKLED_CODER])
def test_values_of_a_coder_of_an_sdk_are_not_counted(urn: str) -> None:
    """They are not decoded either: a pickled coder would be loaded in a worker of all jobs."""
    described = descriptor()
    described.coders["int"].spec.urn = urn
    described.coders["int"].spec.payload = b"not even a pickle"
    declared = declared_states(described)
    backend = MemoryState(value_counter(described, declared))
    asked = StateRequests(backend, declared, {TransformId("count"): "Count/ParDo"})
    values = key("multimap_user_state", "map", map_key=b"m")
    asked.append(values, b"any bytes")
    asked.append(values, b" and more")
    assert asked.get(values).data == b"any bytes and more"
    assert asked.get(key("multimap_keys_user_state", "map")).data == b"m"
    with pytest.raises(FnApiProtocolError, match="map, which begin with the number"):
        asked.get(key("multimap_entries_user_state", "map"))
