"""Accumulators: whatever is emitted early adds up to the same, and little is held."""

import copy
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.transforms.combiners import ToListCombineFn
from apache_beam.transforms.core import (
    CallableWrapperCombineFn,
    NoSideInputsCallableWrapperCombineFn,
)
from apache_beam.transforms.window import (
    GlobalWindows,
    IntervalWindow,
    TimestampCombiner,
)
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import WindowedValue
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.harness.beam.accumulators import Accumulators
from tests.unit.harness.beam.accumulating import (
    EARLIEST,
    PLACES,
    Emitted,
    Plus,
    accumulators,
    origins,
)


def merged(combine_fn: Any, emitted: Emitted) -> dict[Any, Any]:
    """What comes out after the shuffle, by window and key, with the timestamps that arrive."""
    accumulators: defaultdict[Any, list[Any]] = defaultdict(list)
    timestamps: defaultdict[Any, set[Timestamp]] = defaultdict(set)
    for (key, accumulator), origin in emitted:
        (window,) = origin.windows
        accumulators[window, key].append(accumulator)
        timestamps[window, key].add(origin.timestamp)
    return {
        place: (
            combine_fn.extract_output(combine_fn.merge_accumulators(some)),
            min(timestamps[place]),
            max(timestamps[place]),
        )
        for place, some in accumulators.items()
    }


WINDOWS = [IntervalWindow(start, start + 10) for start in range(0, 30, 5)]
VALUES = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.integers(-9, 9),
        st.integers(0, 29),
        st.lists(st.sampled_from(WINDOWS), max_size=3, unique=True).map(tuple),
    )
)


@given(elements=VALUES, chunk=st.integers(1, 7), most=st.sampled_from([0, 700, 3_000, 1 << 20]))
@pytest.mark.parametrize("at", ["end", "earliest", "latest"])
@pytest.mark.parametrize(
    "combine_fn",
    [
        ToListCombineFn(),
        CallableWrapperCombineFn(sum),
        NoSideInputsCallableWrapperCombineFn(sum),
        Plus(),
    ],
)
def test_all_values_are_there_once(
    combine_fn: Any, at: str, elements: Any, chunk: int, most: int
) -> None:
    kind = {
        "end": None,
        "earliest": TimestampCombiner.OUTPUT_AT_EARLIEST,
        "latest": TimestampCombiner.OUTPUT_AT_LATEST,
    }[at]
    combine = TimestampCombiner.get_impl(kind, GlobalWindows()).combine if kind else None
    held, emitted = accumulators(combine_fn, combine_timestamps=combine, most_bytes=most)
    shared: dict[Any, Any] = {}  # equal windows are one object, as they mostly are
    for start in range(0, len(elements), chunk):
        some = elements[start : start + chunk]
        held.add(
            [(key, value) for key, value, _, _ in some],
            [
                WindowedValue(None, time, shared.setdefault(windows, windows))
                for _, _, time, windows in some
            ],
        )
    held.drain()
    found = merged(combine_fn, emitted)
    expected: defaultdict[Any, list[tuple[int, int]]] = defaultdict(list)
    for key, value, time, windows in elements:
        for window in windows:
            expected[window, key].append((value, time))
    assert set(found) == set(expected)
    for place, (output, first, last) in found.items():
        values = [value for value, _ in expected[place]]
        times = [time for _, time in expected[place]]
        is_list = isinstance(output, list)
        assert (sorted(output) if is_list else output) == (
            sorted(values) if is_list else sum(values)
        )
        if at == "end":
            assert first == last == place[0].max_timestamp()
        elif at == "earliest":
            assert first == min(times)
        else:
            assert last == max(times)


def test_global_windows() -> None:
    held, emitted = accumulators(ToListCombineFn(), is_global=True)
    held.add([("a", 1), ("b", 2), ("a", 3)], origins(3))
    assert emitted == []
    held.drain()
    assert [value for value, _ in emitted] == [("a", [1, 3]), ("b", [2])]
    assert {origin.timestamp for _, origin in emitted} == {MIN_TIMESTAMP}
    held.drain()
    assert len(emitted) == 2


@pytest.mark.parametrize(
    "options", [{}, {"combine_timestamps": EARLIEST}], ids=["windows", "timestamps"]
)
@pytest.mark.parametrize(
    "combine_fn",
    [Plus(), CallableWrapperCombineFn(sum), NoSideInputsCallableWrapperCombineFn(sum)],
)
def test_a_key_in_a_window_has_one_accumulator(combine_fn: Any, options: dict[str, Any]) -> None:
    held, emitted = accumulators(combine_fn, lambda _: 1, **options)
    held.add([("a", 1), ("a", 2), ("b", 4), ("a", 8)], origins(4, WINDOWS[0]))
    held.drain()
    assert len(emitted) == 2
    found = merged(combine_fn, emitted)
    assert {key: output for (_, key), (output, _, _) in found.items()} == {"a": 11, "b": 4}


def test_values_that_come_after_their_window_was_emitted_are_not_lost() -> None:
    held, emitted = accumulators(Plus(), lambda _: 0, most_bytes=130 * 4)
    held.add([(key, 1) for key in range(20)], origins(20, WINDOWS[0]))
    assert emitted
    held.drain()
    assert [value for value, _ in emitted] == [(key, 1) for key in range(20)]


@pytest.mark.parametrize("is_global", [True, False])
def test_the_oldest_half_goes_first(is_global: bool) -> None:
    held, emitted = accumulators(
        CallableWrapperCombineFn(sum), lambda _: 0, is_global=is_global, most_bytes=130 * 100
    )
    for key in range(90):
        held.add([(key, 1)], origins(1))
    assert emitted == []
    for key in range(90, 110):
        held.add([(key, 1)], origins(1))
    assert [key for (key, _), _ in emitted] == list(range(len(emitted)))
    assert 50 <= len(emitted) <= 60
    held.drain()
    assert [key for (key, _), _ in emitted] == list(range(110))


def test_old_windows_go_first() -> None:
    held, emitted = accumulators(CallableWrapperCombineFn(sum), lambda _: 0, most_bytes=130 * 1_000)
    for window in WINDOWS:
        held.add([(key, 1) for key in range(300)], origins(300, window))
    kept_back = WINDOWS[-1]
    gone = [origin.windows[0] for _, origin in emitted]
    assert gone == sorted(gone)
    assert kept_back not in gone
    held.drain()
    assert len(emitted) == 300 * len(WINDOWS)


@pytest.mark.parametrize("size", [10, 1_000, 100_000])
@pytest.mark.parametrize("keys", [1, 7, 10_000])
def test_large_values_are_not_held(size: int, keys: int) -> None:
    """Lists of values: the bound holds for values of any size, on few keys and on many."""
    most = 8 << 20
    held, emitted = accumulators(
        ToListCombineFn(),
        lambda accumulator: size * len(accumulator),
        is_global=True,
        most_bytes=most,
    )
    added = sent = largest = 0
    for number in range(20_000):
        held.add([(number % keys, None)], origins(1))
        added += 1
        while emitted:
            (_, accumulator), _ = emitted.pop()
            sent += len(accumulator)
        largest = max(largest, added - sent)
    assert largest * size <= most
    held.drain()
    assert sent + sum(len(accumulator) for (_, accumulator), _ in emitted) == added


@pytest.mark.parametrize(
    "options",
    [{"is_global": True}, {}, {"combine_timestamps": EARLIEST}],
    ids=["global", "windows", "timestamps"],
)
def test_a_large_value_behind_many_small_ones_is_not_held(options: dict[str, Any]) -> None:
    most, size, cold = 8 << 20, 1_000, 1_000
    held, emitted = accumulators(
        ToListCombineFn(), lambda some: size * len(some), most_bytes=most, **options
    )
    for key in range(cold):
        held.add([(key, None)], origins(1))
    sent, largest = 0, 0
    for number in range(20_000):
        held.add([("hot", None)], origins(1))
        while emitted:
            (key, accumulator), _ = emitted.pop()
            sent += len(accumulator) if key == "hot" else 0
        largest = max(largest, number + 1 - sent)
    assert largest * size <= most // 2
    held.drain()
    (hot,) = [accumulator for (key, accumulator), _ in emitted if key == "hot"]
    assert sent + len(hot) == 20_000


@pytest.mark.parametrize(
    "options", [{}, {"combine_timestamps": EARLIEST}], ids=["windows", "timestamps"]
)
def test_values_in_many_windows_are_not_held(options: dict[str, Any]) -> None:
    class Counting(Plus):
        made = most = 0

        def create_accumulator(self) -> int:
            self.made += 1
            self.most = max(self.most, self.made - len(emitted))
            return 0

    combine_fn = Counting()
    held, emitted = accumulators(combine_fn, lambda _: 0, most_bytes=130 * 1_000, **options)
    windows = [IntervalWindow(start, start + 100) for start in range(100)]
    held.add([("key", 1)], origins(1, windows[0]))
    several = [WindowedValue(None, 0, tuple(windows[n % 2 :: 2])) for n in range(100)]
    held.add([(key, 1) for key in range(100)], several)
    assert combine_fn.made == 5_001
    assert combine_fn.most <= 1_050
    held.drain()
    assert sum(value for (_, value), _ in emitted) == len(emitted) == 5_001


class Squeezed(beam.CombineFn):  # type: ignore[misc]
    """Its accumulators can be encoded only once they are compact."""

    def create_accumulator(self) -> list[int]:
        return []

    def add_input(self, accumulator: list[int], value: int) -> list[int]:
        return [*accumulator, value]

    def compact(self, accumulator: list[int]) -> tuple[int, ...]:
        return tuple(accumulator)


def size_of_tuple(accumulator: Any) -> int:
    if not isinstance(accumulator, tuple):
        raise TypeError(accumulator)
    return len(accumulator)


def test_accumulators_are_compact_when_they_are_emitted() -> None:
    held, emitted = accumulators(Squeezed(), size_of_tuple, is_global=True)
    held.add([("a", 1), ("a", 2)], origins(2))
    held.drain()
    assert [value for value, _ in emitted] == [("a", (1, 2))]


class OneForAll(Squeezed):
    """Returns one list from every call."""

    def __init__(self) -> None:
        self._compacted: list[int] = []

    def compact(self, accumulator: list[int]) -> Any:
        self._compacted[:] = accumulator
        return self._compacted


@pytest.mark.parametrize(
    ("combine_fn", "values", "calls"),
    [
        pytest.param(
            OneForAll(), [1, 2, 3], [[("a", [1])], [("b", [2])], [("c", [3])]], id="one list"
        ),
        pytest.param(
            CallableWrapperCombineFn(sum),
            [1, 2, 3],
            [[("a", [1]), ("b", [2]), ("c", [3])]],
            id="its own lists",
        ),
        pytest.param(
            Squeezed(), [1, 2, 3], [[("a", (1,)), ("b", (2,)), ("c", (3,))]], id="constants"
        ),
        pytest.param(
            Squeezed(),
            [1, [], 3],
            [[("b", ([],))], [("a", (1,)), ("c", (3,))]],
            id="some constants",
        ),
    ],
)
def test_compact_accumulators_wait_if_nobody_else_has_them(
    combine_fn: Any, values: list[Any], calls: list[Any]
) -> None:
    emitted: list[Any] = []
    held = Accumulators(
        combine_fn,
        lambda _: 1,
        lambda some, _: emitted.append(copy.deepcopy(some)),
        PLACES,
        is_global=True,
    )
    held.add([*zip("abc", values, strict=True)], origins(3))
    held.drain()
    assert emitted == calls


@pytest.mark.parametrize(("size", "most"), [(1, 128), (100_000, 10), (10 << 20, 1)])
def test_what_is_emitted_at_once_is_not_large(size: int, most: int) -> None:
    sizes: list[int] = []
    held = Accumulators(
        Plus(), lambda _: size, lambda some, _: sizes.append(len(some)), PLACES, most_bytes=8 << 30
    )
    held.add([(key, 1) for key in range(300)], origins(300))
    held.drain()
    assert sum(sizes) == 300
    assert max(sizes) == most


def _kept() -> Callable[[Any], list[int]]:
    shared: list[int] = []

    def of_all(values: Any) -> list[int]:
        shared[:] = [sum(values)]
        return shared

    return of_all


@pytest.mark.parametrize(
    ("function", "calls"),
    [(_kept(), [[("a", [[3]])], [("b", [[7]])]]), (sum, [[("a", [3]), ("b", [7])]])],
    ids=["changeable", "constants"],
)
def test_new_lists_wait_if_what_is_in_them_may(function: Any, calls: list[Any]) -> None:
    emitted: list[Any] = []
    held = Accumulators(
        CallableWrapperCombineFn(function),
        lambda _: 1,
        lambda some, _: emitted.append(copy.deepcopy(some)),
        PLACES,
        is_global=True,
    )
    held.add([("a", 1), ("a", 2), ("b", 3), ("b", 4)], origins(4))
    held.drain()
    assert emitted == calls
