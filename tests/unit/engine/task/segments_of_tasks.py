"""Segments of bounded plans for tasks without Spark."""

from typing import Any

from beam_spark_runner.driving.program_builder import ProgramBuilder
from beam_spark_runner.engine.limits import Limits
from beam_spark_runner.engine.program import LevelProgram
from beam_spark_runner.engine.rows.driver_rows import first_rows
from beam_spark_runner.plan.model import Segment
from tests.compiled import compile_pipeline
from tests.unit.portable.pipelines import proto_of


class FirstSegment:
    """The first segment of a pipeline, and the programs of its levels for a first task.

    Args:
        build: builds the pipeline.
        job: its id.
        round_budget_s: see ``ProgramBuilder.level``.
    """

    def __init__(self, build: Any, job: str, round_budget_s: float | None = None) -> None:
        plan = compile_pipeline(proto_of(build))
        self.segment: Segment
        self.segment, *_ = plan.segments
        limits = Limits(
            max_attempts=1, row_limit_bytes=1 << 20, max_element_bytes=1 << 30, cache_bytes=0
        )
        self.fed = first_rows(dict.fromkeys(self.segment.impulses, b""))
        builder, levels = ProgramBuilder(plan, job, limits), range(len(self.segment.levels))
        self.programs: list[LevelProgram] = [
            builder.level(
                self.segment,
                i,
                4,
                {},
                job=levels,
                round_budget_s=round_budget_s,
                run=3,
                fed=() if i else self.fed,
                in_one_task=True,
            )
            for i in levels
        ]
