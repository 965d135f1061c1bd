"""Merged windows of a key that is too large for memory: the same panes as where it is not."""

import gc
import os
import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.window import IntervalWindow, Sessions, TimestampCombiner, WindowFn
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.harness.grouping.merged_groups import merged_groups
from beam_spark_runner.harness.values.spilled_group import ValueLog, ValueLogs
from beam_spark_runner.semantics.grouping import WindowGrouping, pane_of
from tests.unit.harness.values.spill_files import spill_files
from tests.unit.semantics.strategies import strategy_of
from tests.unit.semantics.test_window_grouping import ByParity


class Twice(Sessions):  # type: ignore[misc]
    """Puts an element into a session by two windows: there it is two times."""

    def assign(self, context: WindowFn.AssignContext) -> list[IntervalWindow]:
        start = context.timestamp
        return [IntervalWindow(start, start + 3), IntervalWindow(start + 2, start + 5)]


Panes = list[tuple[list[Any], Any, Timestamp]]


def panes_of_merged(groups: Iterable[tuple[Any, Any, Timestamp]]) -> Panes:
    found = []
    for values, window, timestamp in groups:
        log = values
        if isinstance(log, ValueLog):
            values = [pickle.loads(coded).value for coded in log]
            log.close()
        found.append((sorted(values), window, pane_of(None, window, timestamp).timestamp))
    return sorted(found)


def panes_of_grouping(grouping: WindowGrouping, values: list[WindowedValue]) -> Panes:
    return sorted(
        (sorted(pane.value[1]), *pane.windows, pane.timestamp)
        for pane in grouping.panes("key", values)
    )


def windowed(window_fn: WindowFn, times: list[int]) -> list[WindowedValue]:
    return [
        WindowedValue(
            place, time, tuple(window_fn.assign(WindowFn.AssignContext(Timestamp(time), place)))
        )
        for place, time in enumerate(times)
    ]


@pytest.mark.parametrize("window_fn", [Sessions(5), ByParity(), Twice(5)])
@pytest.mark.parametrize("at", ["EOW", "EARLIEST", "LATEST"])
@given(times=st.lists(st.integers(0, 60), max_size=30), limit=st.integers(1, 5_000))
def test_panes_are_those_of_smaller_keys(
    window_fn: Any, at: str, times: list[int], limit: int
) -> None:
    combiner = getattr(TimestampCombiner, f"OUTPUT_AT_{at}")
    grouping = WindowGrouping(strategy_of(Windowing(window_fn, timestamp_combiner=combiner)))
    values = windowed(window_fn, times)
    coded = iter([pickle.dumps(each) for each in values])
    large = panes_of_merged(merged_groups(coded, pickle.loads, grouping, ValueLogs(limit)))
    assert large == panes_of_grouping(grouping, values)


def test_large_windows_are_logged_and_small_ones_are_not() -> None:
    values = windowed(Sessions(5), [0, *range(100, 300), 1000])
    coded = [pickle.dumps(each) for each in values]
    limit = 10 * len(coded[0])
    grouping = WindowGrouping(strategy_of(Windowing(Sessions(5))))
    found = {
        str(window): type(values)
        for values, window, _ in merged_groups(
            iter(coded), pickle.loads, grouping, ValueLogs(limit)
        )
    }
    assert found == {
        "[0.0, 5.0)": list,
        "[100.0, 304.0)": ValueLog,
        "[1000.0, 1005.0)": list,
    }


def test_small_windows_share_a_file_that_is_gone_once_they_were_taken() -> None:
    """Two small windows are exactly as large as what may be in memory."""
    times = [1000, *[1100] * 5, 1200, 1300, 1400]
    values = [
        WindowedValue(bytes(1 << 17), time, (IntervalWindow(time, time + 5),)) for time in times
    ]
    coded = [pickle.dumps(each) for each in values]
    assert len({len(each) for each in coded}) == 1
    grouping, logs = (
        WindowGrouping(strategy_of(Windowing(Sessions(5)))),
        ValueLogs(2 * len(coded[0])),
    )
    before = spill_files()
    files = []

    def counted() -> Iterator[tuple[Any, Any, Timestamp]]:
        for group in merged_groups(iter(coded), pickle.loads, grouping, logs):
            files.append(spill_files() - before)
            yield group

    assert panes_of_merged(counted()) == panes_of_grouping(grouping, values)
    assert files == [3, 3, 2, 1, 1]
    assert spill_files() == before
    assert logs.room_bytes == logs.group_memory_bytes


def test_no_more_files_are_open_than_a_process_may_have() -> None:
    values = windowed(Sessions(5), [10 * n for n in range(5_000)])
    coded = (pickle.dumps(each) for each in values)
    grouping = WindowGrouping(strategy_of(Windowing(Sessions(5))))
    gc.collect()  # of earlier tests
    before, most = open_files(), 0

    def counted() -> Iterator[tuple[Any, Any, Timestamp]]:
        nonlocal most
        # Each window is larger than memory has room for: alone in a file, in the end.
        for group in merged_groups(coded, pickle.loads, grouping, ValueLogs(1)):
            most = max(most, open_files())
            yield group

    assert panes_of_merged(counted()) == panes_of_grouping(grouping, values)
    assert most - before < 300
    assert open_files() <= before


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))
