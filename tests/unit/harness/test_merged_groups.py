"""Merged windows of a key that is too large for memory: the same panes as where it is not."""

import pickle
from typing import Any

import pytest
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.window import Sessions, TimestampCombiner, WindowFn
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.harness.merged_groups import merged_groups
from beam_spark_runner.harness.spill import StreamedValues
from beam_spark_runner.semantics.grouping import WindowGrouping
from tests.unit.semantics.test_window_grouping import ByParity


def listed(panes: Any) -> tuple[list[Any], set[type]]:
    found, kinds = [], set()
    for pane in panes:
        key, values = pane.value
        kinds.add(type(values))
        found.append((key, sorted(values), pane.timestamp, pane.windows, str(pane.pane_info)))
        assert sorted(values) == found[-1][1]
        if isinstance(values, StreamedValues):
            values.close()
    return sorted(found), kinds


def windowed(window_fn: WindowFn, times: list[int]) -> list[WindowedValue]:
    return [
        WindowedValue(
            place, time, tuple(window_fn.assign(WindowFn.AssignContext(Timestamp(time), place)))
        )
        for place, time in enumerate(times)
    ]


@pytest.mark.parametrize("window_fn", [Sessions(5), ByParity()])
@pytest.mark.parametrize("at", ["EOW", "EARLIEST", "LATEST"])
@given(times=st.lists(st.integers(0, 60), max_size=30), limit=st.integers(1, 5_000))
def test_panes_are_those_of_smaller_keys(
    window_fn: Any, at: str, times: list[int], limit: int
) -> None:
    combiner = getattr(TimestampCombiner, f"OUTPUT_AT_{at}")
    grouping = WindowGrouping(Windowing(window_fn, timestamp_combiner=combiner))
    values = windowed(window_fn, times)
    coded = iter([pickle.dumps(each) for each in values])
    large, _ = listed(merged_groups("key", coded, pickle.loads, grouping, limit))
    assert large == listed(grouping.panes("key", values))[0]


def test_large_windows_are_streamed_and_small_ones_are_not() -> None:
    values = windowed(Sessions(5), [0, *range(100, 300), 1000])
    coded = [pickle.dumps(each) for each in values]
    limit = 10 * len(coded[0])
    panes = merged_groups(
        "key", iter(coded), pickle.loads, WindowGrouping(Windowing(Sessions(5))), limit
    )
    found = {str(pane.windows[0]): type(pane.value[1]) for pane in panes}
    assert found == {
        "[0.0, 5.0)": list,
        "[100.0, 304.0)": StreamedValues,
        "[1000.0, 1005.0)": list,
    }
