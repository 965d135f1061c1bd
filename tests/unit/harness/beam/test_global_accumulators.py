"""Accumulators of the global window: the ways to add values agree on what equal keys are."""

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from apache_beam.transforms.combiners import CountCombineFn, ToListCombineFn
from apache_beam.transforms.core import NoSideInputsCallableWrapperCombineFn
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.harness.beam.accumulating import CODER, Plus, accumulators, origins

KEYS = st.one_of(
    *(st.integers(0, 3), st.booleans(), st.sampled_from([0.0, -0.0, 1.0, "a", b"a", None])),
    st.tuples(st.integers(0, 1), st.booleans()),
)


@given(
    pairs=st.lists(st.tuples(KEYS, st.integers(0, 9)), max_size=60),
    chunk=st.integers(1, 20),
    most=st.sampled_from([0, 700, 1 << 20]),
)
@pytest.mark.parametrize(
    "combine_fn",
    [
        *(ToListCombineFn(), CountCombineFn(), Plus()),
        NoSideInputsCallableWrapperCombineFn(sum),
        NoSideInputsCallableWrapperCombineFn(sum, buffer_size=2),
    ],
)
def test_all_values_of_the_global_window_are_there_once(
    combine_fn: Any, pairs: list[tuple[Any, int]], chunk: int, most: int
) -> None:
    held, emitted = accumulators(combine_fn, is_global=True, most_bytes=most)
    for start in range(0, len(pairs), chunk):
        some = pairs[start : start + chunk]
        held.add(some, origins(len(some)))
    held.drain()
    found: defaultdict[bytes, list[Any]] = defaultdict(list)
    for (key, accumulator), _ in emitted:
        found[CODER.encode(key)].append(accumulator)
    expected: defaultdict[bytes, Any] = defaultdict(list)
    for key, value in pairs:
        expected[CODER.encode(key)].append(value)
    outputs = {
        key: combine_fn.extract_output(combine_fn.merge_accumulators(some))
        for key, some in found.items()
    }
    ways: dict[type, Any] = {CountCombineFn: len, ToListCombineFn: sorted}
    way = ways.get(type(combine_fn), sum)
    lists = {key: sorted(each) if way is sorted else each for key, each in outputs.items()}
    assert lists == {key: way(values) for key, values in expected.items()}


_EXACT_FLOATS = st.one_of(
    st.integers(-(2**20), 2**20).map(lambda quarters: quarters / 4),
    st.sampled_from([-0.0, float("inf"), float("-inf"), float("nan")]),
)
"""Their sums are exact, and so the same in any grouping; Python 3.12 compensates other ones."""
_ATOMS = st.one_of(
    *(st.integers(-(2**40), 2**40), _EXACT_FLOATS, st.booleans(), st.text(max_size=2), st.none()),
    st.integers(0, 255).map(np.uint8),
)


@given(values=st.lists(_ATOMS, min_size=1, max_size=60), chunk=st.integers(1, 60))
@example(values=[300, *[np.uint8(1)] * 20], chunk=21)
@pytest.mark.parametrize("function", [sum, min, max, any, all])
def test_a_global_combiner_makes_of_chunks_what_it_makes_of_single_values(
    function: Any, values: list[Any], chunk: int
) -> None:
    def outcome(at_once: int) -> str:
        held, emitted = accumulators(NoSideInputsCallableWrapperCombineFn(function), is_global=True)
        pairs = [(None, value) for value in values]
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                for start in range(0, len(pairs), at_once):
                    some = pairs[start : start + at_once]
                    held.add(some, origins(len(some)))
                held.drain()
        except (TypeError, OverflowError) as error:  # of a number that does not fit into a uint8
            return repr(error)
        return repr(emitted[0][0])

    assert outcome(chunk) == outcome(1)
