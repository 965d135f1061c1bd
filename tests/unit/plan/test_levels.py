"""The levels of several segments, counted as one row."""

import pytest

from beam_spark_runner.graph.passes import STREAMING, run_passes
from beam_spark_runner.plan.build import build
from beam_spark_runner.plan.levels import levels, parts
from beam_spark_runner.plan.model import Plan
from tests.golden.notation import parse

GIVEN = """Events: test_stream() -> events
R1: reshuffle(events) -> a
A: pardo(a) -> b @py
R2: reshuffle(b) -> c
B: pardo(c) -> d @py
R3: reshuffle(d) -> e
C: pardo(e) -> f @py
R4: reshuffle(f) -> g
D: pardo(g) -> h @py
R5: reshuffle(h) -> i
E: pardo(i) -> j @py
"""


def plan(max_exchanges: int) -> Plan:
    graph = run_passes(parse(GIVEN), STREAMING)
    return build(graph, max_exchanges=max_exchanges, is_streaming=True)


def test_levels_have_the_numbers_that_they_have_in_one_segment() -> None:
    assert levels(plan(2)) == levels(plan(12))
    assert [segment.first_level for segment in plan(2).segments] == [0, 3, 5]


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        pytest.param(range(6), [(0, range(3)), (1, range(2)), (2, range(1))], id="all"),
        pytest.param(range(2, 4), [(0, range(2, 3)), (1, range(1))], id="the end and a beginning"),
        pytest.param(range(3, 5), [(1, range(2))], id="a whole segment"),
        pytest.param(range(4, 5), [(1, range(1, 2))], id="a part of one"),
        pytest.param(range(0), [], id="none"),
    ],
)
def test_parts_of_segments(numbers: range, expected: list[tuple[int, range]]) -> None:
    found = parts(plan(2), numbers)
    assert [(part.segment.id, part.levels) for part in found] == expected
    assert [each for part in found for each in range(part.first, part.last + 1)] == list(numbers)
