"""The part of a stage that merges accumulators."""

from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.graph import passes
from beam_spark_runner.plan.accumulator_merging import merging_part
from beam_spark_runner.plan.build import build
from beam_spark_runner.plan.model import Stage
from tests.golden.notation import parse


def parts_of(text: str) -> list[Stage]:
    plan = build(passes.run_passes(parse(text), passes.STREAMING), is_streaming=True)
    parts = [merging_part(plan.graph, stage) for stage in plan.stages.values()]
    return [part for part in parts if part is not None]


def test_what_merges_accumulators() -> None:
    (part,) = parts_of(
        """
        Start: impulse() -> start
        Read: pardo(start) -> ages @py
        Mean: combine_per_key(ages) -> means @py accumulator=sums
        Format: pardo(means) -> text @py
        ages :: kv<bytes,varint>
        means :: kv<bytes,double>
        """
    )
    assert part.transforms == (TransformId("Mean/Merge"),)
    assert part.input == "Mean/Group.out"
    assert part.outputs == ("Mean/Merge.out",)
    assert not part.stores  # the stage itself has the groups


def test_groups_of_elements_are_not_merged() -> None:
    assert not parts_of(
        """
        Start: impulse() -> start
        Read: pardo(start) -> ages @py
        Group: group_by_key(ages) -> groups
        Mean: combine_grouped_values(groups) -> means @py accumulator=sums
        ages :: kv<bytes,varint>
        groups :: kv<bytes,iterable<varint>>
        means :: kv<bytes,double>
        """
    )


def test_groups_that_others_read_are_not_merged() -> None:
    assert not parts_of(
        """
        Start: impulse() -> start
        Read: pardo(start) -> ages @py
        Fold: precombine(ages) -> folded @py accumulator=sums
        Group: group_by_key(folded) -> groups
        Merge: merge_accumulators(groups) -> merged @py accumulator=sums
        Look: pardo(groups) -> looked @py
        ages :: kv<bytes,varint>
        folded :: kv<bytes,sums>
        groups :: kv<bytes,iterable<sums>>
        merged :: kv<bytes,sums>
        """
    )
