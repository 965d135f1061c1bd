"""Maps whose entries are requested one by one, over the backend in memory and over a shard."""

from typing import Any

import pytest
from apache_beam.coders import BytesCoder
from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_spark_runner.core import urns
from beam_spark_runner.harness.beam import map_states
from beam_spark_runner.harness.beam.map_states import KeyMap
from beam_spark_runner.harness.beam.state_handler import EmbeddedStateHandler
from beam_spark_runner.state.backend import StateBackend
from beam_spark_runner.state.requests import MULTIMAP, declared_states, use_maps, value_counter
from beam_spark_runner.state.store import StoredState
from tests.examples import examples
from tests.unit.state.sorted_records import SortedRecords


def descriptor() -> beam_fn_api_pb2.ProcessBundleDescriptor:
    spec = beam_runner_api_pb2.StateSpec(
        map_spec=beam_runner_api_pb2.MapStateSpec(key_coder_id="k", value_coder_id="v"),
        protocol=beam_runner_api_pb2.FunctionSpec(urn="beam:user_state:bag:v1"),
    )
    payload = beam_runner_api_pb2.ParDoPayload(state_specs={"seen": spec})
    found = beam_fn_api_pb2.ProcessBundleDescriptor()
    found.transforms["step"].spec.urn = urns.PAR_DO
    found.transforms["step"].spec.payload = payload.SerializeToString()
    use_maps(found)
    return found


class Requests:
    """A handler that counts the addresses that are read and changed."""

    def __init__(self, store: StateBackend | None = None) -> None:
        self._handler = EmbeddedStateHandler(descriptor(), {})
        self._handler.begin({}, store)
        self.asked: list[tuple[str, bytes]] = []

    def note(self, what: str, key: Any) -> None:
        kind = key.WhichOneof("type")
        self.asked.append((what, getattr(getattr(key, kind), "map_key", b"all")))

    def blocking_get(self, key: Any, coder: Any) -> Any:
        self.note("get", key)
        return self._handler.blocking_get(key, coder)

    def extend(self, key: Any, coder: Any, values: Any) -> Any:
        self.note("extend", key)
        return self._handler.extend(key, coder, values)

    def clear(self, key: Any) -> Any:
        self.note("clear", key)
        return self._handler.clear(key)


def a_map(handler: Any, **more: Any) -> KeyMap:
    return KeyMap(handler, "step", "seen", lambda: (b"w", b"key"), **more)


KEYS = st.sampled_from([b"", b"a", b"x" * 200])
ACTS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "get", "remove", "items", "clear", "commit", "again"]), KEYS
    ),
    min_size=5,
    max_size=40,
)


def in_a_shard(records: SortedRecords) -> StoredState:
    known = descriptor()
    return StoredState(records, 1, value_counter(known, declared_states(known)))


@settings(max_examples=examples(800), deadline=None)
@given(ACTS, st.booleans(), st.booleans())
def test_a_map_is_a_dictionary(
    acts: list[tuple[str, bytes]], is_new: bool, is_stored: bool
) -> None:
    handler = Requests(in_a_shard(SortedRecords()) if is_stored else None)
    tested, expected = a_map(handler, is_new=is_new), dict[bytes, bytes]()
    for number, (act, key) in enumerate(acts):
        if act == "put":
            expected[key] = b"%d" % number
            tested.put(key, b"%d" % number)
        elif act == "get":
            assert tested.get(key) == expected.get(key)
        elif act == "remove":
            expected.pop(key, None)
            tested.remove(key)
        elif act == "items":
            assert dict(tested.items()) == expected
            assert len([*tested.items()]) == len(expected)
        elif act == "clear":
            expected.clear()
            tested.clear()
        else:
            tested.commit()
            if act == "again":
                tested = a_map(handler)
    tested.commit()
    assert dict(a_map(handler).items()) == expected


def test_items_are_those_of_their_time() -> None:
    handler = Requests()
    tested = a_map(handler)
    tested.put(b"a", b"1")
    tested.commit()
    tested.put(b"b", b"2")
    items = tested.items()
    tested.put(b"b", b"3")
    tested.clear()
    assert sorted(items) == sorted(items) == [(b"a", b"1"), (b"b", b"2")]


def test_changed_entries_come_in_the_order_of_their_first_changes() -> None:
    """It is the same in each attempt at a bundle, unlike the order of a set."""
    tested = a_map(Requests())
    for key in (b"b", b"a", b"d", b"c", b"a"):
        tested.put(key, b"1")
    assert [key for key, _ in tested.items()] == [b"b", b"a", b"d", b"c"]


def test_only_the_entries_that_are_used_are_requested() -> None:
    handler = Requests()
    tested = a_map(handler)
    for number in range(100):
        tested.put(b"%d" % number, b"")
    tested.commit()
    handler.asked.clear()
    assert [tested.get(b"7"), tested.get(b"7"), tested.get(b"no")] == [b"", b"", None]
    tested.put(b"7", b"seven")
    tested.put(b"new", b"")
    assert tested.get(b"new") == b""
    tested.commit()
    nested = BytesCoder().get_impl().encode_nested
    assert handler.asked[:2] == [("get", nested(b"7")), ("get", nested(b"no"))]
    assert sorted(handler.asked[2:]) == [
        ("clear", nested(b"7")),
        ("clear", nested(b"new")),
        ("extend", nested(b"7")),
        ("extend", nested(b"new")),
    ]


def test_a_shard_reads_and_writes_few_records_of_a_large_map() -> None:
    records = SortedRecords()
    handler = Requests(in_a_shard(records))
    tested = a_map(handler)
    for number in range(10_000):
        tested.put(b"%d" % number, b"value")
    tested.commit()
    records.gotten = records.scanned = 0
    records.puts.clear()
    assert tested.get(b"77") == b"value"
    tested.put(b"77", b"new")
    tested.put(b"more", b"")
    tested.remove(b"78")
    tested.commit()
    assert records.gotten + records.scanned + len(records.puts) < 40
    assert len(dict(tested.items())) == 10_000


def test_few_of_the_entries_that_were_read_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_states, "_MAX_READ", 3)
    handler = Requests()
    tested = a_map(handler)
    tested.put(b"changed", b"1")
    for number in range(10):
        assert tested.get(b"%d" % number) is None
    assert len(tested._entries) <= 5
    assert tested.get(b"changed") == b"1"
    assert dict(tested.items()) == {b"changed": b"1"}


def test_a_new_map_is_not_read() -> None:
    handler = Requests()
    tested = a_map(handler, is_new=True)
    assert tested.get(b"a") is None
    tested.put(b"a", b"1")
    assert [*tested.items()] == [(b"a", b"1")]
    tested.clear()
    tested.put(b"b", b"2")
    tested.commit()
    assert [what for what, _ in handler.asked] == ["extend"]
    assert dict(tested.items()) == {b"b": b"2"}


@pytest.mark.parametrize("kind", ["map_spec", "set_spec", "bag_spec"])
def test_only_maps_of_declarative_steps_become_multimaps(kind: str) -> None:
    spec = beam_runner_api_pb2.StateSpec()
    getattr(spec, kind).SetInParent()
    spec.protocol.urn = MULTIMAP if kind == "map_spec" else "beam:user_state:bag:v1"
    payload = beam_runner_api_pb2.ParDoPayload(state_specs={"seen": spec})
    found = beam_fn_api_pb2.ProcessBundleDescriptor()
    found.transforms["step"].spec.urn = urns.PAR_DO
    found.transforms["step"].spec.payload = payload.SerializeToString()
    before = found.SerializeToString(deterministic=True)
    use_maps(found)
    assert found.SerializeToString(deterministic=True) == before
    assert declared_states(descriptor())["step", "seen"].protocol == MULTIMAP
