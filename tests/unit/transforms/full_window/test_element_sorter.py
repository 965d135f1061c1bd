"""Sorted elements have the timestamps, windows and panes that they had before."""

import operator
import random
from typing import Any

import pytest
from apache_beam.coders import FastPrimitivesCoder
from apache_beam.transforms.window import FixedWindows, GlobalWindow, GlobalWindows, IntervalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import PaneInfo, PaneInfoTiming, WindowedValue

from beam_spark_runner.transforms.full_window.coding import ElementCodec
from beam_spark_runner.transforms.full_window.element_sorter import ElementSorter

ON_TIME = PaneInfo(True, False, PaneInfoTiming.ON_TIME, 0, 0)
MEMORY = [pytest.param(1 << 12, id="on disk"), pytest.param(1 << 24, id="in memory")]


def sorted_elements(
    elements: list[WindowedValue], memory_bytes: int, *, window_fn: Any, at_once: int = 50
) -> list[WindowedValue]:
    codec = ElementCodec(FastPrimitivesCoder(), window_fn.get_window_coder())
    codec.setup()
    sorter = ElementSorter(codec, operator.itemgetter(0), descends=False, memory_bytes=memory_bytes)
    for start in range(0, len(elements), at_once):
        some = elements[start : start + at_once]
        sorter.add([each.value for each in some], some)
    return [
        origin.with_value(value)
        for values, origins in sorter.sorted()
        for value, origin in zip(values, origins, strict=True)
    ]


def in_order(elements: list[WindowedValue]) -> list[WindowedValue]:
    return sorted(elements, key=lambda each: each.value[0])


def keys(count: int) -> list[int]:
    chance = random.Random(5)
    return [chance.randrange(count // 2) for _ in range(count)]


@pytest.mark.parametrize("memory_bytes", MEMORY)
@pytest.mark.parametrize("at_once", [10, 50])
@pytest.mark.parametrize("different", [1, 3, 900, 2_500])
def test_each_element_keeps_its_timestamp_and_window(
    different: int, at_once: int, memory_bytes: int
) -> None:
    """Those that share them, those that do not, and more than a table has room for."""
    times = [Timestamp(number) for number in range(different)]
    elements = [
        WindowedValue((key, i), time, (IntervalWindow(0, 1 << 20),), ON_TIME)
        for i, key in enumerate(keys(5_000))
        for time in [times[i // 2 % different]]
    ]
    window_fn = FixedWindows(1 << 20)
    found = sorted_elements(elements, memory_bytes, window_fn=window_fn, at_once=at_once)
    assert found == in_order(elements)


@pytest.mark.parametrize("memory_bytes", MEMORY)
def test_a_table_that_is_full_and_elements_of_both_kinds(memory_bytes: int) -> None:
    shared = [WindowedValue(None, Timestamp(i), (GlobalWindow(),)) for i in range(1_100)]
    elements = [shared[i // 8 % 1_100].with_value((key, i)) for i, key in enumerate(keys(20_000))]
    found = sorted_elements(elements, memory_bytes, window_fn=GlobalWindows(), at_once=8)
    assert found == in_order(elements)


@pytest.mark.parametrize("memory_bytes", MEMORY)
def test_an_element_in_several_windows_counts_as_several(memory_bytes: int) -> None:
    windows = tuple(IntervalWindow(start, start + 10) for start in (0, 5))
    elements = [
        WindowedValue((key, i), MIN_TIMESTAMP, windows[: 1 + i % 2], ON_TIME)
        for i, key in enumerate(keys(2_000))
    ]
    exploded = [
        WindowedValue(each.value, each.timestamp, (window,), each.pane_info)
        for each in elements
        for window in each.windows
    ]
    found = sorted_elements(elements, memory_bytes, window_fn=FixedWindows(10))
    assert found == in_order(exploded)


def test_an_origin_may_change_after_its_elements_were_taken() -> None:
    origin = WindowedValue(None, Timestamp(1), (IntervalWindow(0, 10),))
    codec = ElementCodec(FastPrimitivesCoder(), FixedWindows(10).get_window_coder())
    codec.setup()
    sorter = ElementSorter(codec, operator.itemgetter(0), descends=False, memory_bytes=1 << 20)
    sorter.add([(2,), (1,)], [origin, origin])
    origin.windows = (IntervalWindow(10, 20),)
    sorter.add([(0,)], [origin])
    ((values, origins),) = sorter.sorted()
    assert values == [(0,), (1,), (2,)]
    assert [each.windows[0].start for each in origins] == [10, 0, 0]
