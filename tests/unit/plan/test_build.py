"""Destinations, and plans of large graphs. What plans mean is held by the property tests."""

import time

import pytest

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.graph import passes
from beam_spark_runner.plan.build import MAX_EXCHANGES_PER_SEGMENT, build
from beam_spark_runner.plan.model import Delivery, Plan
from tests.golden.notation import parse


def plan_of(text: str) -> Plan:
    return build(passes.run_passes(parse(text), passes.BATCH))


def deliveries(plan: Plan) -> list[tuple[str, str, str]]:
    return [
        (destination.delivery.value, destination.arriving, destination.name)
        for destination in plan.destinations.values()
    ]


def test_each_way_into_a_stage_has_its_delivery() -> None:
    plan = plan_of(
        """
        Start: impulse() -> start
        Read: pardo(start) -> pairs @py restriction=range
        Group: group_by_key(pairs) -> groups
        Spread: reshuffle(pairs) -> spread
        Use: pardo(groups) -> a @py
        Keep: pardo(spread) -> b @py
        Look: pardo(a, b as iterable) -> c @py
        pairs :: kv<bytes,bytes>, fixed at=latest
        groups :: kv<bytes,iterable<bytes>>, fixed at=latest
        spread :: kv<bytes,bytes>, fixed at=latest
        """
    )
    assert deliveries(plan) == [
        ("pointwise", "start", "Read/PairWithRestriction"),
        ("redistribute by size", "start_split", "Read/Process"),
        ("group by key", "pairs", "Group"),
        ("redistribute", "pairs", "Spread"),
        ("pointwise", "a", "Look"),
        ("side input", "b", "Look"),
    ]
    assert plan.segments[0].impulses == (1,)
    assert "start" not in plan.consumers
    assert plan.consumers["pairs"] == (3, 4)  # type: ignore[index]
    assert plan.destinations[3].timestamp_combiner.value == "latest"  # type: ignore[index]


def test_readers_share_a_side_input_of_one_access_pattern() -> None:
    plan = plan_of(
        """
        Start: impulse() -> start
        Table: pardo(start) -> table @py
        A: pardo(start, table as iterable) -> a @py
        B: pardo(start, table as iterable) -> b @py
        C: pardo(start, table as multimap) -> c @py
        """
    )
    sides = [d for d in plan.destinations.values() if d.delivery is Delivery.SIDE_INPUT]
    assert [d.access_pattern for d in sides] == [urns.SIDE_INPUT_ITERABLE, urns.SIDE_INPUT_MULTIMAP]
    assert set(plan.segments[0].writes) == {d.id for d in sides}
    assert plan.segments[0].writes[sides[0].id] == "side input of A, B"
    assert set(plan.segments[1].side_inputs) == {d.id for d in sides}


def test_a_processing_behind_a_reshuffle_is_spread_once() -> None:
    plan = plan_of(
        """
        Start: impulse() -> start
        Split: pardo(start) -> split @py
        Spread: reshuffle(split) -> spread
        Process: process_sized(spread) -> out @py
        split :: kv<kv<bytes,range>,double>
        spread :: kv<kv<bytes,range>,double>
        """
    )
    assert ("redistribute by size", "split", "Spread") in deliveries(plan)
    assert len(plan.stages) == 2


def test_a_graph_that_was_not_fused_is_our_bug() -> None:
    with pytest.raises(InvariantError):
        build(parse("Start: impulse() -> a\nUse: pardo(a) -> b @py"))


def chain(steps: int, groupings: int) -> str:
    lines = ["S0: impulse() -> c0", "First: pardo(c0) -> d0 @py"]
    kinds = []
    for number in range(1, steps):
        kind = "reshuffle" if number % (steps // groupings) == 0 else "pardo"
        kinds.append(kind)
        environment = " @py" if kind == "pardo" else ""
        lines.append(f"S{number}: {kind}(d{number - 1}) -> d{number}{environment}")
    return "\n".join(lines)


def fan(width: int) -> str:
    lines = ["S: impulse() -> s", "First: pardo(s) -> first @py"]
    for number in range(width):
        lines.append(f"A{number}: pardo(first, s as iterable) -> a{number} @py")
        lines.append(f"B{number}: pardo(a{number}, a{number} as iterable) -> b{number} @py")
    lines.append(f"All: flatten({', '.join(f'b{number}' for number in range(width))}) -> all")
    lines += [f"C{number}: pardo(all) -> out{number} @py" for number in range(width)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        pytest.param(chain(2_000, 300), 28, id="a chain of 2,000 steps and 300 exchanges"),
        pytest.param(fan(600), 3, id="a Flatten of 600 branches, each with side inputs"),
    ],
)
def test_large_graphs_take_well_under_a_second(text: str, segments: int) -> None:
    graph = parse(text)
    start = time.process_time()
    plan = build(passes.run_passes(graph, passes.BATCH))
    assert time.process_time() - start < 1
    assert len(plan.segments) == segments
    for segment in plan.segments:
        exchanges = sum(level.has_exchange for level in segment.levels)
        assert exchanges <= MAX_EXCHANGES_PER_SEGMENT
