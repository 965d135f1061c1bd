"""To which step elements are charged that come too late for a stage."""

from beam_spark_runner.graph import passes
from beam_spark_runner.plan.build import build
from beam_spark_runner.plan.dropping import dropping_step
from tests.golden.notation import parse


def dropping(text: str) -> list[tuple[str, str | None]]:
    """Return the name of each stage, with the step to which it charges."""
    plan = build(passes.run_passes(parse(text), passes.STREAMING), is_streaming=True)
    return [(stage.name, dropping_step(plan, stage)) for stage in plan.stages.values()]


def test_groups_are_those_of_the_grouping() -> None:
    found = dropping(
        """
        Start: impulse() -> start
        Read: pardo(start) -> pairs @py
        Group: group_by_key(pairs) -> groups
        Use: pardo(groups) -> used @py
        Count: combine_per_key(pairs) -> counts @py accumulator=sums
        Format: pardo(counts) -> text @py
        pairs :: kv<bytes,varint>
        groups :: kv<bytes,iterable<varint>>
        counts :: kv<bytes,varint>
        """
    )
    assert ("Use", "Group") in found
    assert [step for _, step in found].count("Count/Group") == 1


def test_a_step_that_waits_for_its_side_inputs_is_the_users() -> None:
    found = dropping(
        """
        Start: impulse() -> start
        Read: pardo(start) -> pairs @py
        Rates: pardo(start) -> rates @py
        Count: pardo(pairs, rates as iterable) -> counts @py state=count
        Look: pardo(pairs, rates as multimap) -> looked @py
        pairs :: kv<bytes,varint>
        rates :: kv<bytes,varint>
        """
    )
    assert found.count(("Count", "Count")) == 2  # one of them waits for the side input
    assert ("side input of Count", "Count") in found
    assert found.count(("Look", "Look")) == found.count(("side input of Look", "Look")) == 1
