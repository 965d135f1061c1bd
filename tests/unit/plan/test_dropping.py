"""To which step elements are charged that come too late for a stage."""

from beam_spark_runner.graph import passes
from beam_spark_runner.plan.build import build
from beam_spark_runner.plan.dropping import dropping_step
from tests.golden.notation import parse


def dropping(text: str) -> dict[str, str | None]:
    """Return the step of each stage that stores something, by the name of the stage."""
    plan = build(passes.run_passes(parse(text), passes.STREAMING), streams=True)
    return {stage.name: dropping_step(plan, stage) for stage in plan.stages.values()}


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
    assert found["Use"] == "Group"
    assert list(found.values()).count("Count/Group") == 1


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
    assert found["Count"] == found["Count/Wait"] == found["side input of Count/Wait"] == "Count"
    assert found["Look"] == found["side input of Look"] == "Look"
