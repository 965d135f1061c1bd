"""Residuals among sorted records: they are there for whoever opens the records next."""

from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.time import END_OF_GLOBAL_WINDOW_US, MAX_US
from beam_spark_runner.state.residuals import ResidualTimer
from beam_spark_runner.state.store import StoredState
from beam_spark_runner.state.stored_residuals import StoredKeyedValues, StoredTimers, total_size
from tests.unit.harness.sdf.residual_protos import INPUT_CODER, restriction
from tests.unit.state.sorted_records import SortedRecords, count_values

NOW_US = 1_000


def opened(records: SortedRecords, now_us: int = NOW_US) -> StoredTimers:
    return StoredTimers(StoredState(records, 1, count_values), lambda: now_us)


def set_some(timers: StoredTimers, *some: ResidualTimer) -> None:
    for timer in some:
        timers.set_current_key(timer.key)
        timers.set_timer(timer.window, timer.id, timer.fire_at_us, timer.hold_us)


ONE = ResidualTimer(900, b"k", b"w", "1", 50)
OTHER = ResidualTimer(800, b"k", b"w", "2", 40)
LATER = ResidualTimer(1_001, b"l", b"w", "3", 30)


def test_those_that_are_due_come_in_the_order_of_time() -> None:
    records = SortedRecords()
    set_some(opened(records), ONE, OTHER, LATER)
    assert list(opened(records).due()) == [OTHER, ONE]
    assert list(opened(records, 2_000).due()) == [OTHER, ONE, LATER]


def test_in_a_drain_what_is_not_truncated_is_due() -> None:
    records = SortedRecords()
    timers = opened(records)
    set_some(timers, LATER)
    timers.truncated = True
    cut = LATER._replace(id="4", was_truncated=True), ONE._replace(was_truncated=True)
    set_some(timers, *cut)
    drained = StoredTimers(StoredState(records, 1, count_values), lambda: NOW_US, drains=True)
    assert list(drained.due()) == [cut[1], LATER]
    assert list(opened(records, 2_000).due()) == [cut[1], LATER, cut[0]]


def test_how_long_to_process_one_is_stored_too() -> None:
    records = SortedRecords()
    timers = opened(records)
    timers.slice_us = 300_000
    set_some(timers, ONE)
    timers.truncated = True
    set_some(timers, OTHER)
    assert list(opened(records).due()) == [
        OTHER._replace(slice_us=300_000, was_truncated=True),
        ONE._replace(slice_us=300_000),
    ]


def test_they_stay_until_they_are_removed() -> None:
    records = SortedRecords()
    timers = opened(records)
    set_some(timers, ONE, OTHER)
    timers.remove(OTHER)
    assert list(timers.due()) == [ONE]
    timers.remove(ONE)
    assert not records.values


def test_one_in_two_windows() -> None:
    records = SortedRecords()
    timers = opened(records)
    elsewhere = ONE._replace(window=b"v")
    set_some(timers, ONE, elsewhere)
    assert sorted(timers.due()) == sorted([ONE, elsewhere])
    timers.remove(ONE)
    assert list(timers.due()) == [elsewhere]


def test_what_is_pending_holds_the_watermark() -> None:
    records = SortedRecords()
    store = StoredState(records, 1, count_values)
    timers = opened(records)
    set_some(timers, ONE, OTHER, LATER)
    assert (store.least_hold(), store.count_holders()) == (30, 3)
    timers.remove(LATER)
    assert (store.least_hold(), store.count_holders()) == (40, 2)


def test_a_source_at_the_end_of_time_has_not_ended() -> None:
    records = SortedRecords()
    set_some(opened(records), ONE._replace(hold_us=MAX_US))
    assert StoredState(records, 1, count_values).least_hold() == END_OF_GLOBAL_WINDOW_US


def test_values_by_window_and_id() -> None:
    records = SortedRecords()

    def values(page_bytes: int = 1 << 20) -> StoredKeyedValues:
        store = StoredState(records, 1, count_values, page_bytes=page_bytes)
        opened = StoredKeyedValues(store, INPUT_CODER)
        opened.set_current_key(b"k")
        return opened

    def read(id_: str) -> WindowedValue:
        return values().read(b"w", id_)

    one, other = restriction("a" * 5_000, 3), restriction("b", 4)
    values().write(b"w", "1", one)
    values().write(b"w", "2", other)
    assert (read("1"), read("2")) == (one, other)
    assert values(page_bytes=100).read(b"w", "1") == one
    values().clear(b"w", "1")
    values().clear(b"w", "2")
    assert not records.values


def test_the_size_of_all_that_are_stored() -> None:
    records = SortedRecords()
    store = StoredState(records, 1, count_values)
    values = StoredKeyedValues(store, INPUT_CODER)
    assert total_size(store) == 0

    def add(residual: ResidualTimer, size: float) -> None:
        element = restriction(residual.id)
        values.set_current_key(residual.key)
        values.write(residual.window, residual.id, element.with_value((element.value[0], size)))
        set_some(opened(records), residual)

    add(ONE, 2.5)
    add(OTHER, 4.0)
    assert total_size(store) == 6.5
    add(LATER, float("inf"))
    assert total_size(store) is None


def test_the_size_of_very_many_is_not_summed_up() -> None:
    records = SortedRecords()
    timers = opened(records)
    set_some(timers, *(ONE._replace(id=str(number), key=b"%d" % number) for number in range(101)))
    assert total_size(StoredState(records, 1, count_values)) is None
