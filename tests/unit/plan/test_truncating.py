"""The step that truncates restrictions, next to the stage that processes them."""

from beam_spark_runner.core import urns
from beam_spark_runner.graph import passes
from beam_spark_runner.plan.build import build
from beam_spark_runner.plan.model import Stored
from beam_spark_runner.plan.truncating import truncating_part
from tests.golden.notation import parse


def test_it_reads_what_the_stage_reads() -> None:
    graph = parse(
        """
        Start: impulse() -> start
        Read: pardo(start) -> lines @py restriction=offsets
        Format: pardo(lines) -> texts @py
        """
    )
    plan = build(passes.run_passes(graph, passes.STREAMING), is_streaming=True)
    (stage,) = (each for each in plan.stages.values() if each.is_splittable)
    changed, part = truncating_part(plan, stage)
    (step,) = part.transforms
    truncate = changed.graph.transforms[step]
    assert truncate.urn == urns.SDF_TRUNCATE_SIZED_RESTRICTIONS
    assert list(truncate.main_inputs.values()) == [stage.input] == [part.input]
    assert list(truncate.outputs.values()) == list(part.outputs)
    assert (part.environment, part.is_splittable) == (stage.environment, False)
    assert stage.stores == {Stored.RESTRICTIONS}
    assert not part.stores
    assert step not in plan.graph.transforms
