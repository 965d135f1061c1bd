"""A task whose stage gives something back, though nothing in it is splittable."""

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.driving.program_builder import ProgramBuilder
from beam_spark_runner.engine.limits import Limits
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.task import task
from beam_spark_runner.harness.beam.embedded_stage import EmbeddedBundle
from beam_spark_runner.harness.bundle import BundleResult, Residual
from tests.compiled import compile_pipeline
from tests.unit.engine.task.emitted import reports_in
from tests.unit.portable.pipelines import proto_of


def test_a_bundle_fails_if_no_splittable_dofn_leaves_a_residual(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = Residual(WindowedValue(b"", 0, (GlobalWindow(),)), 0, 0)
    monkeypatch.setattr(
        EmbeddedBundle, "finish", lambda self: BundleResult(monitoring_infos=(), deferred=(left,))
    )

    def build(p: beam.Pipeline) -> None:
        p | beam.Impulse() | "Format" >> beam.Map(len) | beam.Reshuffle() | beam.Map(print)

    plan = compile_pipeline(proto_of(build))
    segment = plan.segments[0]
    limits = Limits(
        max_attempts=1, row_limit_bytes=1 << 20, max_element_bytes=1 << 20, cache_bytes=0
    )
    builder = ProgramBuilder(plan, "job", limits)
    levels = range(len(segment.levels))
    program = builder.level(segment, 0, 2, {}, job=levels, round_budget_s=None)
    impulse = schema.batch_of(int(segment.impulses[0]), np.zeros(1, np.int64), None, None, [b""])
    (report,) = reports_in(task.LevelTask(program).run(iter([impulse])))
    assert "self-checkpoint is only supported on splittable DoFns" in str(report.failure)
    assert "Format" in str(report.failure)
