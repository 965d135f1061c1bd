"""Where elements go after an operation: every one is handed over once, and counted once."""

from collections.abc import Callable
from typing import Any

import pytest
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.harness.beam.chunk_edge import ChunkEdge
from beam_spark_runner.harness.values.constants import Kind


class Receiver:
    """Counts as Beam's does: one element from start to finish, and more by its counter."""

    def __init__(self) -> None:
        self.opcounter = self.element_counter = self
        self.count = 0
        self.sampled: list[Any] = []
        self.received: list[WindowedValue] = []

    def update(self, more: int) -> None:
        self.count += more

    def update_counters_start(self, element: WindowedValue) -> None:
        self.sampled.append(element.value)

    def update_counters_finish(self) -> None:
        self.count += 1

    def receive(self, element: WindowedValue) -> None:
        self.received.append(element)


class Reader:
    """Takes chunks and single values."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.times: list[int] = []

    def process_chunk(self, values: list[Any], origins: list[WindowedValue], kind: Kind) -> None:
        for value, each in zip(values, origins, strict=True):
            self.process_one(value, each)

    def process_one(self, value: Any, origin: WindowedValue) -> None:
        self.values.append(value)
        self.times.append(int(origin.timestamp))


class PlainReader:
    """One of Beam's own operations: it gets its elements from the receiver."""


def origin(number: int) -> WindowedValue:
    return WindowedValue(None, number, (GlobalWindow(),))


def edge(*readers: Any, **options: bool) -> tuple[ChunkEdge, Receiver]:
    receiver = Receiver()
    return ChunkEdge(receiver, readers, **options), receiver


ORIGINS = [origin(number) for number in range(3)]


def test_a_chunk_goes_to_all_readers() -> None:
    readers = Reader(), Reader()
    out, receiver = edge(*readers)
    out.send(["a", "b", "c"], ORIGINS, Kind.CONSTANT)
    assert [(each.values, each.times) for each in readers] == [(["a", "b", "c"], [0, 1, 2])] * 2
    assert (receiver.count, receiver.sampled, receiver.received) == (3, ["a"], [])


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("value", ["text", (1, ("text", None)), frozenset({1})])
def test_constants_go_to_all_readers_at_once(kind: Kind, value: Any) -> None:
    out, receiver = edge(Reader(), Reader())
    out.send([value] * 3, ORIGINS, kind)
    assert (receiver.count, receiver.received) == (3, [])


@pytest.mark.parametrize("kind", [Kind.OWN, Kind.NEW])
def test_what_one_reader_may_change_goes_to_each_of_several_before_the_next_one(kind: Kind) -> None:
    out, receiver = edge(Reader(), Reader())
    out.send([["a"], ["b"]], ORIGINS[:2], kind)
    assert [each.value for each in receiver.received] == [["a"], ["b"]]
    alone, receiver = edge(Reader())
    alone.send([["a"], ["b"]], ORIGINS[:2], kind)
    assert (receiver.count, receiver.received) == (2, [])


def test_one_reader_that_takes_no_chunks_is_enough_to_use_the_receiver() -> None:
    out, receiver = edge(Reader(), PlainReader())
    out.send(["a", "b", "c"], ORIGINS, Kind.CONSTANT)
    out.sender()("d", origin(3))
    assert [(each.value, int(each.timestamp)) for each in receiver.received] == [
        *(("a", 0), ("b", 1), ("c", 2), ("d", 3))
    ]


@pytest.mark.parametrize(("assigns", "kind"), [(True, list), (False, tuple)])
def test_windows_are_as_beams_step_would_give_them(assigns: bool, kind: type) -> None:
    out, receiver = edge(PlainReader(), assigns_windows=assigns)
    out.send(["a"], ORIGINS[:1], Kind.CONSTANT)
    assert [type(each.windows) for each in receiver.received] == [kind]


@pytest.mark.parametrize("reader", [Reader, PlainReader])
def test_values_without_origins_are_our_bug(reader: Callable[[], Any]) -> None:
    out, _ = edge(reader())
    with pytest.raises(InvariantError, match="2 values came with 3 origins"):
        out.send(["a", "b"], ORIGINS, Kind.CONSTANT)


@pytest.mark.parametrize("count", [0, 1, 2, 128, 129, 130, 300])
def test_single_values_are_all_counted_and_some_are_sampled(count: int) -> None:
    reader = Reader()
    out, receiver = edge(reader)
    send_one = out.sender()
    for number in range(count):
        send_one(number, origin(number))
    out.finish()
    assert reader.values == reader.times == list(range(count))
    assert receiver.count == count
    assert receiver.sampled == list(range(0, count, 128))
    out.finish()
    assert receiver.count == count


def test_bundles_are_sampled_again() -> None:
    out, receiver = edge(Reader())
    send_one = out.sender()
    for bundle in ("first", "second"):
        send_one(bundle, origin(0))
        send_one("more", origin(1))
        out.finish()
    assert (receiver.count, receiver.sampled) == (4, ["first", "second"])


@pytest.mark.parametrize("reader", [Reader, PlainReader])
def test_special_results_go_elsewhere(reader: Callable[[], Any]) -> None:
    special: list[Any] = []
    one = reader()
    out, receiver = edge(one)
    send_one = out.sender(lambda value, _: special.append(value))
    tagged = [TaggedOutput("tag", number) for number in range(2)]
    for value in (1, tagged[0], 2, tagged[1]):
        send_one(value, origin(0))
    out.finish()
    assert special == tagged
    taken = one.values if isinstance(one, Reader) else [each.value for each in receiver.received]
    assert taken == [1, 2]
