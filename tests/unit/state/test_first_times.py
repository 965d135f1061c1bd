"""Which holds are listed beside the due times, and that the watermark is held as by all of them."""

from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.semantics.timers import Domain
from beam_spark_runner.semantics.watermarks import output_us
from beam_spark_runner.state.backend import StoredTimer
from beam_spark_runner.state.first_times import FirstTimes
from beam_spark_runner.state.store import StoredState
from beam_spark_runner.state.store_keys import StoreKeys
from tests.unit.state.sorted_records import SortedRecords, count_values

STAGE, STEP = 1, "t"
KEYS = StoreKeys(STAGE)
MS = 1_000
TIMES = st.integers(0, 5).map(lambda ms: ms * MS)
TIMERS = st.builds(
    lambda domain, fires_us, hold_us: StoredTimer("f", "", b"w", domain, fires_us, hold_us, b""),
    st.sampled_from(Domain),
    TIMES,
    st.one_of(TIMES, st.just(MAX_US)),
)


def store_of(records: SortedRecords, *, lists_holds: bool = True) -> StoredState:
    return StoredState(records, STAGE, count_values, lists_holds=lists_holds)


def timer(fires_us: int, hold_us: int) -> StoredTimer:
    return StoredTimer("f", "", b"w", Domain.EVENT_TIME, fires_us, hold_us, b"")


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=1), st.lists(TIMERS, max_size=3))), TIMES)
def test_the_watermark_is_held_as_by_all_holds(
    changes: list[tuple[bytes, list[StoredTimer]]], watermark_us: int
) -> None:
    listed, counted = store_of(SortedRecords()), store_of(SortedRecords(), lists_holds=False)
    for key, timers in changes:
        listed.set_timers(STEP, key, timers)
        counted.set_timers(STEP, key, timers)
    due_us, _ = counted.next_due()
    left_due_us = due_us if due_us is not None and due_us <= watermark_us else None
    assert output_us(watermark_us, listed.least_hold(), left_due_us) == output_us(
        watermark_us, counted.least_hold(), left_due_us
    )


def test_a_hold_that_is_not_before_the_first_due_time_has_no_record() -> None:
    records = SortedRecords()
    store = store_of(records)
    store.set_timers(STEP, b"k", [timer(50, 50), timer(70, 60)])
    assert not [*records.scan(KEYS.holds())]
    assert store.least_hold() == 50
    store.set_timers(STEP, b"k", [timer(50, 50), timer(70, 40)])
    assert [KEYS.hold_time(key) for key, _ in records.scan(KEYS.holds())] == [40]
    assert store.least_hold() == 40
    store.set_timers(STEP, b"k", ())
    assert not [*records.scan(b"")]
    assert store.least_hold() is None


def test_a_record_that_earlier_versions_have_made_goes_with_its_timer() -> None:
    records = SortedRecords()
    store = store_of(records)
    store.set_timers(STEP, b"k", [timer(50, 50)])
    records.put(KEYS.hold(50) + KEYS.owner(STEP, b"k"), b"1")
    store.set_timers(STEP, b"k", [timer(70, 70)])
    assert store.least_hold() == 70
    assert not [*records.scan(KEYS.holds())]


def test_holds_that_processing_time_timers_have_are_listed() -> None:
    assert FirstTimes(None, 5, 20).listed_hold_us == 20
    assert FirstTimes(30, 5, 20).listed_hold_us == 20
    assert FirstTimes(20, 5, 20).listed_hold_us == MAX_US
