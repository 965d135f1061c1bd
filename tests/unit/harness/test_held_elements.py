"""Whatever a step keeps for later holds the watermark so that nothing downstream drops it."""

from collections.abc import Callable
from typing import Any

import pytest
from apache_beam.coders import StrUtf8Coder, TupleCoder, WindowedValueCoder
from apache_beam.coders.coders import IntervalWindowCoder
from apache_beam.transforms.window import IntervalWindow
from apache_beam.utils.timestamp import MAX_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import WindowedValue
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.core.time import MIN_US, whole_milliseconds
from beam_spark_runner.harness.sdf.epoch_input import EpochRestrictions
from beam_spark_runner.harness.stable import StableElements
from beam_spark_runner.harness.time_sorted import TimeSortedElements
from beam_spark_runner.harness.waiting import WaitingElements
from beam_spark_runner.semantics.lateness import LateElements
from beam_spark_runner.semantics.timers import expiry_us
from beam_spark_runner.semantics.watermarks import output_us
from beam_spark_runner.state.store import StoredState
from tests.unit.harness.sdf.residual_protos import INPUT_CODER, restriction
from tests.unit.state.sorted_records import SortedRecords, count_values

CODER = WindowedValueCoder(TupleCoder([StrUtf8Coder(), StrUtf8Coder()]), IntervalWindowCoder())


def waiting(store: StoredState, elements: list[WindowedValue]) -> None:
    kept = WaitingElements(
        store,
        CODER,
        are_ready=lambda windows: [False] * len(windows),
        is_expired=lambda window: False,
        late=LateElements(),
    )
    kept.pass_on(_refuse, [each.value for each in elements], elements)
    kept.save()


def stable(store: StoredState, elements: list[WindowedValue]) -> None:
    kept = StableElements(
        store, CODER, is_expired=lambda window: False, late=LateElements(), is_keyed=True
    )
    kept.push([each.value for each in elements], elements)
    kept.advance_key()
    kept.save()


def time_sorted(store: StoredState, elements: list[WindowedValue]) -> None:
    kept = TimeSortedElements(
        store,
        CODER,
        late_before_us=MIN_US,
        is_expired=lambda window: False,
        late=LateElements(),
        has_timers=False,
    )
    for each in elements:
        kept.push([each.value], [each])


def restrictions(store: StoredState, elements: list[WindowedValue]) -> None:
    kept = EpochRestrictions(
        store=store,
        start_bundle=_refuse,
        on_completed=_refuse,
        input_coder=INPUT_CODER,
        collection="words",
        now_us=lambda: 0,
        spent_us=lambda: 0,
        budget_us=0,
        idle_us=0,
    )
    value = restriction("a").value
    kept.push([value] * len(elements), [each.with_value(value) for each in elements])


def _refuse(*_: Any) -> Any:
    raise AssertionError("nothing goes on")


@st.composite
def timed(draw: st.DrawFn) -> WindowedValue:
    """An element that is in its window, at an end of it, or beyond."""
    start = draw(st.integers(-20, 20))
    window = IntervalWindow(start, start + 10)
    edges = (window.start, window.max_timestamp(), window.end, MAX_TIMESTAMP)
    at = draw(st.sampled_from(edges) | st.integers(-50, 50).map(Timestamp))
    return WindowedValue(("k", "v"), at, (window,))


@pytest.mark.parametrize("keep", [waiting, stable, time_sorted, restrictions])
@given(elements=st.lists(timed(), min_size=1, max_size=5))
def test_no_window_expires_before_its_elements_come(
    keep: Callable[[StoredState, list[WindowedValue]], None], elements: list[WindowedValue]
) -> None:
    store = StoredState(SortedRecords(), 1, count_values)
    keep(store, elements)
    hold_us = store.least_hold()
    assert hold_us is not None
    watermark_us = output_us(MAX_TIMESTAMP.micros, hold_us, None)
    for each in elements:
        (window,) = each.windows
        assert watermark_us <= whole_milliseconds(each.timestamp.micros)
        assert watermark_us < expiry_us(window.max_timestamp().micros, 0)
