"""User state over the Fn API's state stream, of the kinds that Beam's Python SDK does not have."""

from collections.abc import Callable
from typing import Any, TypeAlias

import apache_beam as beam
import pytest
from apache_beam.coders import BytesCoder, IterableCoder, TupleCoder, VarIntCoder
from apache_beam.coders.coders import LengthPrefixCoder
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2
from apache_beam.transforms.environments import (
    SDK_VERSION_CAPABILITY_PREFIX,
    ExternalEnvironment,
)
from apache_beam.transforms.userstate import BagStateSpec

from beam_spark_runner.core.ids import StageId
from beam_spark_runner.harness.remote.remote_stage import RemoteStage
from beam_spark_runner.harness.remote.settings import HarnessSettings
from beam_spark_runner.portable.descriptor import describe
from beam_spark_runner.portable.sdk_options import options_json
from beam_spark_runner.semantics.timers import START_OF_TIME
from beam_spark_runner.state.memory import UNCOUNTED, MemoryState
from beam_spark_runner.state.policy import BATCH, KeyPolicy
from tests.compiled import compile_pipeline
from tests.harness.conftest import BARE, Collected
from tests.harness.faults import ask_state
from tests.harness.scripted_sdk import Pool, ScriptedSdk, sink_of

pytestmark = [pytest.mark.grpc, pytest.mark.timeout(60)]

Key: TypeAlias = beam_fn_api_pb2.StateKey
Request: TypeAlias = beam_fn_api_pb2.StateRequest
ENTRY = TupleCoder([VarIntCoder(), LengthPrefixCoder(BytesCoder())])  # of an ordered list
VALUES = TupleCoder([BytesCoder(), IterableCoder(BytesCoder())])  # of a multimap


class Keeps(beam.DoFn):  # type: ignore[misc]
    """Declares the states whose kinds ``as_java_declares`` changes; no SDK ever runs it."""

    MAP = BagStateSpec("map", BytesCoder())
    LIST = BagStateSpec("list", BytesCoder())

    def process(
        self,
        pair: Any,
        a_map: Any = beam.DoFn.StateParam(MAP),
        a_list: Any = beam.DoFn.StateParam(LIST),
    ) -> Any: ...


def as_java_declares(par_do: beam_runner_api_pb2.ParDoPayload) -> None:
    protocols = common_urns.user_state
    coder = par_do.state_specs["map"].bag_spec.element_coder_id
    par_do.state_specs["map"].protocol.urn = protocols.MULTIMAP.urn
    par_do.state_specs["map"].multimap_spec.key_coder_id = coder
    par_do.state_specs["map"].multimap_spec.value_coder_id = coder
    par_do.state_specs["list"].protocol.urn = protocols.ORDERED_LIST.urn
    par_do.state_specs["list"].ordered_list_spec.element_coder_id = coder


def keyed_stage(url: str, sdk: str = "") -> RemoteStage:
    pipeline = beam.Pipeline()
    pair = beam.Map(lambda x: (x, x)).with_output_types(tuple[bytes, bytes])
    step = beam.ParDo(Keeps()).with_output_types(bytes)
    (pipeline | beam.Impulse() | pair | "keeps" >> step | beam.Reshuffle() | beam.Map(repr))
    capabilities = [SDK_VERSION_CAPABILITY_PREFIX + sdk] if sdk else []
    environment = ExternalEnvironment(url, capabilities=capabilities)
    proto = pipeline.to_runner_api(default_environment=environment)
    for each in proto.components.transforms.values():
        if each.unique_name == "keeps":
            par_do = beam_runner_api_pb2.ParDoPayload.FromString(each.spec.payload)
            as_java_declares(par_do)
            each.spec.payload = par_do.SerializeToString()
    plan = compile_pipeline(proto)
    (id_,) = (StageId(id_) for id_, stage in plan.stages.items() if stage.is_keyed)
    settings = HarnessSettings(job_id="job", options_json=options_json({}))
    return RemoteStage("keeps", describe(plan, id_), settings, id_)


class Asking:
    """An SDK that asks for state in one bundle, then does nothing with its input."""

    def __init__(self, make: Callable[["Asking"], list[Any]]) -> None:
        self._make = make
        self.answers: list[Any] = []
        self.step = ""

    def __call__(self, sdk: ScriptedSdk) -> None:
        sdk.connect()
        instruction, descriptor = sdk.next_bundle()
        (self.step,) = (
            id_ for id_, each in descriptor.transforms.items() if "pardo" in each.spec.urn
        )
        requests = self._make(self)
        for number, request in enumerate(requests):
            request.id, request.instruction_id = str(number), instruction
        self.answers = ask_state(sdk, *requests)
        list(sdk.input_blocks(instruction))
        sdk.send(instruction, sink_of(descriptor), is_last=True)
        sdk.respond(instruction)

    def key(self, kind: str, state: str, **more: Any) -> Key:
        message = type(getattr(Key(), kind))
        named = {"transform_id": self.step, "user_state_id": state, "window": b"", "key": b"\1k"}
        return Key(**{kind: message(**named, **more)})

    def run(self, scripted: Callable[[Callable[[ScriptedSdk], None]], Pool]) -> list[Any]:
        stage = keyed_stage(scripted(self).url)
        bundle = stage.start_bundle(dict.fromkeys(stage.output_coders, Collected()), {})
        bundle.push([(b"k", b"a")], [BARE])
        bundle.advance_key()
        bundle.finish()
        assert not any(answer.error for answer in self.answers)
        return [answer.get.data for answer in self.answers if answer.HasField("get")]


def get(key: Key) -> Request:
    return Request(state_key=key, get=beam_fn_api_pb2.StateGetRequest())


def append(key: Key, data: bytes) -> Request:
    return Request(state_key=key, append=beam_fn_api_pb2.StateAppendRequest(data=data))


def clear(key: Key) -> Request:
    return Request(state_key=key, clear=beam_fn_api_pb2.StateClearRequest())


def nested(*values: bytes) -> bytes:
    encode = BytesCoder().get_impl().encode_nested
    return b"".join(map(encode, values))


def test_a_multimap_by_key_by_its_keys_and_by_its_entries(scripted: Any) -> None:
    def requests(sdk: Asking) -> list[Any]:
        keys = sdk.key("multimap_keys_user_state", "map")
        entries = sdk.key("multimap_entries_user_state", "map")
        one, two = (
            sdk.key("multimap_user_state", "map", map_key=nested(each)) for each in (b"1", b"2")
        )
        return [
            append(one, nested(b"a", b"b")),
            append(two, nested(b"c")),
            append(one, nested(b"d")),
            *map(get, (one, two, keys, entries)),
            clear(one),
            *map(get, (one, keys, entries)),
            clear(keys),
            *map(get, (two, keys, entries)),
        ]

    found = Asking(requests).run(scripted)
    assert found[:3] == [nested(b"a", b"b", b"d"), nested(b"c"), nested(b"1", b"2")]
    entries = [(key, list(values)) for key, values in VALUES.get_impl().decode_all(found[3])]
    assert entries == [(b"1", [b"a", b"b", b"d"]), (b"2", [b"c"])]
    assert found[4:6] == [b"", nested(b"2")]
    entries = [(key, list(values)) for key, values in VALUES.get_impl().decode_all(found[6])]
    assert entries == [(b"2", [b"c"])]
    assert found[7:] == [b"", b"", b""]


def test_an_ordered_list_by_range(scripted: Any) -> None:
    def coded(*entries: tuple[int, bytes]) -> bytes:
        return b"".join(map(ENTRY.get_impl().encode_nested, entries))

    def requests(sdk: Asking) -> list[Any]:
        def part(start: int, end: int) -> Key:
            return sdk.key("ordered_list_user_state", "list", range={"start": start, "end": end})

        whole = part(-(1 << 63), (1 << 63) - 1)
        return [
            append(whole, coded((5, b"five"), (-3, b"minus three"), (7, b"seven"))),
            append(whole, coded((6, b"six"), (5, b"again"))),
            *map(get, (whole, part(5, 7), part(8, 100))),
            clear(part(-100, 6)),
            get(whole),
            clear(whole),
            get(whole),
        ]

    assert Asking(requests).run(scripted) == [
        coded((-3, b"minus three"), (5, b"five"), (5, b"again"), (6, b"six"), (7, b"seven")),
        coded((5, b"five"), (5, b"again"), (6, b"six")),
        b"",
        coded((6, b"six"), (7, b"seven")),
        b"",
    ]


@pytest.mark.parametrize("stores", [False, True], ids=["dropped", "stored"])
def test_requests_that_name_no_key_are_of_the_key_of_their_bundle(
    scripted: Any, stores: bool
) -> None:
    """Java's SDK up to 2.68 leaves the key out of requests for MapState and SetState."""
    seen: list[bytes] = []

    def script(sdk: ScriptedSdk) -> None:
        sdk.connect()
        for number in range(4):
            instruction, descriptor = sdk.next_bundle()
            elements = b"".join(sdk.input_blocks(instruction))
            (step,) = (
                id_ for id_, each in descriptor.transforms.items() if "pardo" in each.spec.urn
            )
            state = {"transform_id": step, "user_state_id": "map", "window": b""}
            of = Key(
                multimap_user_state=Key.MultimapUserState(**state, map_key=nested(b"%d" % number))
            )
            keys = Key(multimap_keys_user_state=Key.MultimapKeysUserState(**state))
            requests = [get(keys), append(of, b"")]
            for id_, request in enumerate(requests):
                request.id, request.instruction_id = f"{number}.{id_}", instruction
            known, _ = ask_state(sdk, *requests)
            (key,) = (key for key in (b"key k", b"key l") if key in elements)
            seen.append(key[-1:] + known.get.data)
            sdk.send(instruction, sink_of(descriptor), is_last=True)
            sdk.respond(instruction)

    stage = keyed_stage(scripted(script).url, "apache/beam_java17_sdk:2.65.0")
    receivers = dict.fromkeys(stage.output_coders, Collected())
    policy = KeyPolicy(START_OF_TIME, MemoryState(lambda *_: UNCOUNTED)) if stores else BATCH
    for _ in range(2):
        bundle = stage.start_bundle(receivers, {}, policy)
        for key in (b"key k", b"key l"):
            bundle.push([(key, b"a")], [BARE])
            bundle.advance_key()
        bundle.finish()
    first = [b"k", b"l"]
    again = [b"k" + nested(b"0"), b"l" + nested(b"1")]
    assert seen == first + (again if stores else first)
