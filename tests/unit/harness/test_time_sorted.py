"""Elements that wait for their turn, over records in memory."""

from typing import Any

from apache_beam.coders import StrUtf8Coder, TupleCoder, WindowedValueCoder
from apache_beam.coders.coders import GlobalWindowCoder
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.harness.time_sorted import TIME_SORTED, TimeSortedElements
from beam_spark_runner.semantics.lateness import LateElements
from beam_spark_runner.semantics.timers import NEVER_US
from beam_spark_runner.state.store import StoredState
from tests.unit.state.sorted_records import SortedRecords, count_values

CODER = WindowedValueCoder(TupleCoder([StrUtf8Coder(), StrUtf8Coder()]), GlobalWindowCoder())
KEY = StrUtf8Coder().get_impl()


class Story:
    """What happens to keys. See ``SteppedInput``."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def push(self, values: list[Any], origins: list[WindowedValue]) -> None:
        assert [origin.value for origin in origins] == values
        self.events += [value for _, value in values]

    def flush(self) -> None: ...

    def begin_key(self, key: bytes) -> None:
        self.events.append(f"begin {KEY.decode_nested(key)}")

    def fire_until(self, watermark_us: int) -> None:
        self.events.append(watermark_us)

    def advance_key(self) -> None:
        self.events.append("end")

    def advance_key_until(self, hold_us: int) -> None:
        raise AssertionError


class Epochs:
    """One epoch after another over the same records."""

    def __init__(self) -> None:
        self.records = SortedRecords()
        self.store = StoredState(self.records, 1, count_values, page_bytes=64)
        self._before_us = MIN_US
        self.late = LateElements()

    def epoch(
        self, watermark_us: int, *elements: WindowedValue, has_timers: bool = False
    ) -> list[Any]:
        """Return what happens in an epoch that comes to a watermark."""
        waiting = TimeSortedElements(
            self.store,
            CODER,
            late_before_us=self._before_us,
            is_expired=lambda window: False,
            late=self.late,
            has_timers=has_timers,
        )
        for each in elements:
            waiting.push([each.value], [each])
            waiting.advance_key()
        story = Story()
        for owner, key in self.store.due(watermark_us, NEVER_US):
            assert owner == TIME_SORTED
            waiting.process(key, story, story, watermark_us)
        self._before_us = watermark_us
        return story.events


def at(*times: int, key: str = "k") -> list[WindowedValue]:
    return [
        WindowedValue((key, str(time)), Timestamp(micros=time), (GlobalWindow(),)) for time in times
    ]


def test_elements_wait_until_the_watermark_is_there() -> None:
    epochs = Epochs()
    assert epochs.epoch(4, *at(7, 3, 5, 1)) == ["begin k", "1", "3", "end"]
    assert epochs.epoch(5, *at(6, 4)) == ["begin k", "4", "5", "end"]
    assert epochs.epoch(5) == []
    assert epochs.epoch(MAX_US) == ["begin k", "6", "7", "end"]
    assert not epochs.records.values


def test_what_comes_later_than_the_watermark_is_dropped() -> None:
    epochs = Epochs()
    epochs.epoch(5, *at(3))
    assert epochs.epoch(9, *at(4, 6, 5)) == ["begin k", "5", "6", "end"]
    assert epochs.late.dropped == 1


def test_timers_fire_in_between() -> None:
    epochs = Epochs()
    expected = ["begin k", 0, "1", "1", 2, "3", "end"]
    assert epochs.epoch(4, *at(3, 1, 7, 1), has_timers=True) == expected


def test_the_first_that_waits_holds_the_watermark() -> None:
    epochs = Epochs()
    epochs.epoch(2, *at(7, 5), *at(9, 3, key="other"))
    assert epochs.store.least_hold() == 3
    assert epochs.store.next_due() == (3, None)
    epochs.epoch(4)
    assert epochs.store.least_hold() == 5
    epochs.epoch(8)
    assert epochs.store.next_due() == (9, None)


def test_the_beginning_of_time_is_no_exception() -> None:
    epochs = Epochs()
    assert epochs.epoch(MIN_US, *at(MIN_US, MIN_US + 1), has_timers=True) == [
        "begin k",
        MIN_US - 1,
        str(MIN_US),
        "end",
    ]


@given(st.lists(st.tuples(st.integers(0, 20), st.lists(st.integers(0, 30))), max_size=8))
def test_each_element_comes_once_and_in_order(epochs_of: Any) -> None:
    epochs, seen, watermark, expected, too_late = Epochs(), [], MIN_US, 0, 0
    for advance, times in epochs_of:
        expected += sum(time >= watermark for time in times)
        too_late += sum(time < watermark for time in times)
        watermark = max(watermark, 0) + advance
        seen += epochs.epoch(watermark, *at(*times))
    seen += epochs.epoch(MAX_US)
    times = [int(each) for each in seen if each not in ("begin k", "end")]
    assert times == sorted(times)
    assert len(times) == expected
    assert epochs.late.dropped == too_late
    assert not epochs.records.values


def test_many_elements_come_in_pages() -> None:
    epochs, count = Epochs(), 1000
    times = [number * 7919 % count for number in range(count)]
    epochs.epoch(0, *at(*times))
    found = epochs.epoch(count // 2)[1:-1]
    assert found == [*map(str, range(1, count // 2 + 1))]


def test_the_hold_is_at_most_the_end_of_the_window() -> None:
    """Each element has its own, as long as it waits; a grouping downstream would drop it later."""
    epochs, end_us = Epochs(), GlobalWindow().max_timestamp().micros
    epochs.epoch(1, *at(MAX_US, 4, MAX_US - 1000), *at(6, 5))
    assert epochs.store.least_hold() == 4
    assert epochs.epoch(4) == ["begin k", "4", "end"]
    assert epochs.store.least_hold() == 5
    last_us = MAX_US - 1000
    assert epochs.epoch(end_us + 1) == ["begin k", "5", "6", "end"]
    assert epochs.store.least_hold() == end_us
    assert epochs.epoch(last_us) == ["begin k", str(last_us), "end"]
    assert epochs.store.least_hold() == end_us
    assert epochs.epoch(MAX_US) == ["begin k", str(MAX_US), "end"]
    assert not epochs.records.values


def test_what_comes_earlier_each_time_adds_no_timers() -> None:
    epochs = Epochs()
    for time in range(50, 40, -1):
        epochs.epoch(1, *at(time))
        assert len(epochs.store.timers(TIME_SORTED, KEY.encode_nested("k"))) == 1
