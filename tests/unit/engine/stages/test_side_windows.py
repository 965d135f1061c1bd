"""Which windows of a side input may still be looked up."""

from typing import Any, cast

import pytest
from apache_beam.internal import pickler
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.transforms import core
from apache_beam.transforms.window import (
    FixedWindows,
    GlobalWindows,
    IntervalWindow,
    SlidingWindows,
)

from beam_spark_runner.engine.program import WindowMapping
from beam_spark_runner.engine.stages.side_windows import looked_up_from_us, window_mapper
from beam_spark_runner.engine.worker.runtime import JobRuntime

SECOND = 1_000_000
NO_JOB = cast(JobRuntime, None)  # nobody is asked


def coded(window_fn: Any) -> bytes:
    proto = core.Windowing(window_fn).to_runner_api(PipelineContext())
    return bytes(proto.SerializeToString())


def mapping(main: Any, function: Any) -> WindowMapping:
    return WindowMapping(
        step="look up",
        coded_windowing=coded(FixedWindows(10)),
        coded_main=coded(main),
        pickled=pickler.dumps(function) if function else b"",
    )


def ten_before(window: Any) -> IntervalWindow:
    start = window.max_timestamp().micros // (10 * SECOND) * 10 - 10
    return IntervalWindow(start, start + 10)


def first(window: Any) -> IntervalWindow:
    return IntervalWindow(0, 10)


def test_windows_are_mapped_by_the_function() -> None:
    to_sides = window_mapper(
        NO_JOB, mapping(FixedWindows(10), ten_before), FixedWindows(10).get_window_coder()
    )
    (side,) = to_sides([IntervalWindow(20, 30)])
    assert side.end_us == 20 * SECOND - 1
    assert side.name == FixedWindows(10).get_window_coder().encode(IntervalWindow(10, 20))


@pytest.mark.parametrize(
    ("main", "function", "at", "lateness", "end"),
    [
        (FixedWindows(10), ten_before, 25, 0, 20),
        (FixedWindows(10), ten_before, 30, 0, 30),
        (FixedWindows(10), ten_before, 30, 1, 20),  # the window that has ended there may get more
        (FixedWindows(10), None, 25, 0, 30),  # by default
        (SlidingWindows(20, 10), ten_before, 25, 0, 20),  # that of 10 to 30 is the first
        (GlobalWindows(), first, 1_000_000, 0, 10),  # always
    ],
)
def test_the_first_window_that_may_still_be_looked_up(
    main: Any, function: Any, at: int, lateness: int, end: int
) -> None:
    from_us = looked_up_from_us(NO_JOB, mapping(main, function), at * SECOND, lateness * SECOND)
    assert from_us - lateness * SECOND == pytest.approx(end * SECOND, abs=1000)
