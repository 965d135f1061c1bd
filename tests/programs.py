"""Prepares a client's pipeline as a job server does, and builds what its Spark would run."""

from collections.abc import Iterator

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.driving.program_builder import ProgramBuilder
from beam_spark_runner.engine.limits import Limits
from beam_spark_runner.engine.program import (
    EpochPart,
    HelperProgram,
    LevelProgram,
    ShardLocations,
    StageInEpochs,
    StageProgram,
)
from beam_spark_runner.job.prepare.prepare import PreparedJob, prepare
from beam_spark_runner.options import RunnerConfig


def prepared_for_a_client(
    pipeline: beam_runner_api_pb2.Pipeline, *, is_streaming: bool = False
) -> PreparedJob:
    """Prepare a pipeline; it is changed."""
    options = PipelineOptions(streaming=is_streaming)
    config = RunnerConfig.from_options(options)
    given = {"streaming": is_streaming}
    return prepare(pipeline, options, config, lambda _: "", job_id="job", all_options=given)


def programs(job: PreparedJob) -> Iterator[LevelProgram]:
    """Yield the programs of all levels."""
    shards = ShardLocations(lineage="l", deltas="/d", local=None, key_groups=4)
    limits = Limits(
        max_attempts=1,
        row_limit_bytes=1 << 20,
        max_element_bytes=1 << 20,
        cache_bytes=1 << 20,
        options_json=job.options_json,
        harnesses=job.harnesses,
    )
    epoch = EpochPart(shards=shards) if job.plan.is_streaming else None
    builder = ProgramBuilder(job.plan, job.job_id, limits, epoch)
    for segment in job.plan.segments:
        levels = range(len(segment.levels))
        for index in levels:
            yield builder.level(segment, index, 2, {}, job=levels, round_budget_s=None)


def helpers_of(program: StageProgram) -> Iterator[HelperProgram]:
    """Yield the programs of the helpers of a stage."""
    part = program.epoch or StageInEpochs()
    asked = (each.helper for each in part.mappings.values())
    for each in (program.window_merger, part.merger, part.truncator, *asked):
        if each is not None:
            yield each
