"""What the programs of stages have in batch, in epochs, and in both."""

from collections.abc import Callable, Iterable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.pvalue import AsIter
from apache_beam.transforms.environments import ProcessEnvironment

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.engine.program import StageProgram
from beam_spark_runner.plan.model import Stored
from tests.canaries import windows
from tests.programs import helpers_of, prepared_for_a_client, programs
from tests.spark.restrictions import RESTRICTION


class Count(beam.DoFn):  # type: ignore[misc]
    def process(
        self, pair: tuple[str, int], rates: Iterable[int], tracker: Any = RESTRICTION
    ) -> None:
        """Never runs."""


def splittable(p: beam.Pipeline) -> None:
    rates = p | "rates" >> beam.Create([2])
    p | beam.Create([("a", 3)]) | beam.ParDo(Count(), AsIter(rates))


def stages_of(build: Callable[[beam.Pipeline], None], *, is_streaming: bool) -> list[StageProgram]:
    p = beam.Pipeline()
    build(p)
    proto = p.to_runner_api(default_environment=ProcessEnvironment(""))
    job = prepared_for_a_client(proto, is_streaming=is_streaming)
    return [stage for level in programs(job) for stage in level.stages]


@pytest.mark.parametrize("is_streaming", [False, True], ids=["batch", "epochs"])
@pytest.mark.parametrize("build", [windows, splittable])
def test_a_stage_has_what_belongs_to_its_mode(
    build: Callable[[beam.Pipeline], None], *, is_streaming: bool
) -> None:
    for stage in stages_of(build, is_streaming=is_streaming):
        assert (stage.batch is None) is is_streaming
        assert (stage.epoch is None) is not is_streaming
        with pytest.raises(InvariantError, match="bounded" if is_streaming else "in epochs"):
            _ = stage.in_batch if is_streaming else stage.in_epochs


@pytest.mark.parametrize("is_streaming", [False, True], ids=["batch", "epochs"])
@pytest.mark.parametrize("build", [windows, splittable])
def test_no_two_of_the_stages_and_helpers_share_an_id(
    build: Callable[[beam.Pipeline], None], *, is_streaming: bool
) -> None:
    stages = stages_of(build, is_streaming=is_streaming)
    helpers = [helper for stage in stages for helper in helpers_of(stage)]
    ids = [*(each.stage for each in stages), *(each.stage for each in helpers)]
    assert len(set(ids)) == len(ids)
    assert bool(helpers) is (is_streaming or build is windows)


def test_a_truncator_looks_up_what_its_stage_looks_up() -> None:
    stages = stages_of(splittable, is_streaming=True)
    (stage,) = (
        each
        for each in stages
        if Stored.RESTRICTIONS in each.in_epochs.stores and each.in_epochs.views
    )
    truncator = stage.in_epochs.truncator
    assert truncator is not None
    (step,) = truncator.description.step_names
    assert {reader for reader, _ in truncator.views} == {step}
    assert [*truncator.views.values()] == [*stage.in_epochs.views.values()]
