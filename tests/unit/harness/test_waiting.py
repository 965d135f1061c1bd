"""Elements that wait for side inputs, over records in memory."""

from collections.abc import Sequence
from typing import Any

from apache_beam.coders import StrUtf8Coder, WindowedValueCoder
from apache_beam.coders.coders import IntervalWindowCoder
from apache_beam.transforms.window import IntervalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.harness.waiting import WaitingElements, copy_waiting
from beam_spark_runner.semantics.lateness import LateElements
from beam_spark_runner.state.store import StoredState
from tests.unit.state.sorted_records import SortedRecords, count_values

CODER = WindowedValueCoder(StrUtf8Coder(), IntervalWindowCoder())


class Seen:
    """Gets what is pushed. See ``BundleInput``."""

    def __init__(self) -> None:
        self.elements: list[tuple[str, int]] = []  # and the start of their only window

    def push(self, values: list[Any], origins: list[WindowedValue]) -> None:
        for value, origin in zip(values, origins, strict=True):
            self.elements += [(value, int(window.start)) for window in origin.windows]

    def flush(self) -> None: ...

    def advance_key(self) -> None: ...


class Epochs:
    """One epoch after another over the same records."""

    def __init__(self) -> None:
        self.records = SortedRecords()
        self.store = StoredState(self.records, 1, count_values, page_bytes=64)
        self.late = LateElements()

    def epoch(
        self, *elements: WindowedValue, ready: tuple[int, ...] = (), expired: int = -1
    ) -> tuple[list[tuple[str, int]], bool]:
        """Return what passes in an epoch, and whether something waits after it."""
        waiting = WaitingElements(
            self.store,
            CODER,
            are_ready=lambda windows: [window.start in ready for window in windows],
            is_expired=lambda window: window.start == expired,
            late=self.late,
        )
        seen = Seen()
        waiting.release(seen)
        waiting.pass_on(seen.push, [each.value for each in elements], list(elements))
        return sorted(seen.elements), waiting.save()


def element(value: str, *starts: int, at: int = 7) -> WindowedValue:
    windows = tuple(IntervalWindow(start, start + 10) for start in starts)
    return WindowedValue(value, Timestamp(at), windows)


def test_what_is_ready_passes() -> None:
    epochs = Epochs()
    assert epochs.epoch(element("a", 0), ready=(0,)) == ([("a", 0)], False)
    assert not epochs.records.values


def test_what_is_not_ready_waits_until_it_is() -> None:
    epochs = Epochs()
    assert epochs.epoch(element("a", 0), element("b", 10), ready=(10,)) == ([("b", 10)], True)
    assert epochs.epoch(element("c", 0)) == ([], True)
    assert epochs.epoch(element("d", 0), ready=(0,)) == ([("a", 0), ("c", 0), ("d", 0)], False)
    assert not epochs.records.values


def test_the_window_of_the_earliest_element_that_waits() -> None:
    store = StoredState(SortedRecords(), 1, count_values)

    def waiting(*ready: int) -> WaitingElements:
        return WaitingElements(
            store,
            CODER,
            are_ready=lambda windows: [window.start in ready for window in windows],
            is_expired=lambda window: False,
            late=LateElements(),
        )

    some = waiting()
    assert some.earliest() is None
    elements = [element("a", 0, at=9), element("b", 10, at=8), element("c", 10, at=11)]
    some.pass_on(Seen().push, [each.value for each in elements], elements)
    some.save()
    window = IntervalWindow(10, 20)
    coded = CODER.window_coder.encode(window)
    assert waiting().earliest() == (window, coded, 8_000_000)
    others = waiting(10)
    others.release(Seen())
    earliest = others.earliest()
    assert earliest is not None
    assert earliest[0] == IntervalWindow(0, 10)


def test_an_element_may_be_ready_in_some_of_its_windows() -> None:
    epochs = Epochs()
    assert epochs.epoch(element("a", 0, 5), ready=(5,)) == ([("a", 5)], True)
    assert epochs.epoch(ready=(0, 5)) == ([("a", 0)], False)


def test_many_elements_wait_in_pages() -> None:
    epochs = Epochs()
    many = [element(str(number), 0) for number in range(500)]
    epochs.epoch(*many)
    passed, waits = epochs.epoch(ready=(0,))
    assert sorted(passed) == sorted((str(number), 0) for number in range(500))
    assert not waits
    assert not epochs.records.values


def test_the_least_timestamp_holds_the_watermark() -> None:
    epochs = Epochs()
    epochs.epoch(element("a", 0, at=5), element("b", 0, at=3), element("c", 10, at=12))
    assert epochs.store.least_hold() == 3_000_000
    epochs.epoch(ready=(0,))
    assert epochs.store.least_hold() == 12_000_000


def test_what_comes_too_late_is_dropped_and_what_waits_is_not() -> None:
    epochs = Epochs()
    assert epochs.epoch(element("a", 0)) == ([], True)
    late = element("late", 0, 10), element("later", 0)
    assert epochs.epoch(*late, ready=(0, 10), expired=0) == ([("a", 0), ("late", 10)], False)
    assert epochs.late.dropped == 2
    assert epochs.epoch(element("late", 0), expired=0) == ([], False)
    assert epochs.late.dropped == 3


def test_what_waits_may_go_to_what_waits_elsewhere() -> None:
    """Two shards become one."""
    new, others = Epochs(), [Epochs(), Epochs()]
    for number, old in enumerate(others):
        old.epoch(*(element(f"{number} {each}", 0, at=9 - number) for each in range(20)))
        old.epoch(element(f"last of {number}", 10 * number, at=3 + number))
    for old in others:
        copy_waiting(old.store, new.store)
    assert new.store.least_hold() == 3_000_000
    first = sorted((f"{number} {each}", 0) for number in range(2) for each in range(20))
    assert new.epoch(ready=(0,)) == ([*first, ("last of 0", 0)], True)
    assert new.store.least_hold() == 4_000_000
    assert new.epoch(ready=(10,)) == ([("last of 1", 10)], False)
    assert not new.records.values


def test_windows_of_a_chunk_are_asked_for_at_once_and_once() -> None:
    asked: list[list[int]] = []

    def are_ready(windows: Sequence[Any]) -> list[bool]:
        asked.append(sorted(int(window.start) for window in windows))
        return [window.start == 10 for window in windows]

    store, seen = StoredState(SortedRecords(), 1, count_values), Seen()

    def epoch(*elements: WindowedValue) -> None:
        waiting = WaitingElements(
            store,
            CODER,
            are_ready=are_ready,
            is_expired=lambda window: False,
            late=LateElements(),
        )
        waiting.release(seen)
        for _ in range(2):
            waiting.pass_on(seen.push, [each.value for each in elements], list(elements))
        waiting.save()

    epoch(element("a", 0), element("b", 10), element("c", 0, 20))
    assert asked == [[0, 10, 20]]
    epoch(element("d", 30))
    assert asked[1:] == [[0, 20], [30]]


def test_the_hold_is_at_most_the_end_of_the_window() -> None:
    """A grouping downstream would drop what comes after it."""
    epochs = Epochs()
    epochs.epoch(element("a", 0, at=25))
    assert epochs.store.least_hold() == IntervalWindow(0, 10).max_timestamp().micros
