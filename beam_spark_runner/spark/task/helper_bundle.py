"""Bundles in which the SDK helps a stage: to merge accumulators, or windows."""

from collections.abc import Sequence
from typing import Any

from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.errors import BundleFailedError
from beam_spark_runner.spark.program import StageProgram
from beam_spark_runner.spark.task.worker_runtime import JobRuntime


def run_helper(
    job: JobRuntime, program: StageProgram, elements: Sequence[WindowedValue]
) -> tuple[list[Any], Sequence[bytes]]:
    """Run one bundle of a stage that has one output and no side inputs.

    Args:
        job: of the task.
        program: of the stage.
        elements: its input.

    Returns:
        The values of the output, in the order of the elements; and monitoring infos.

    Raises:
        BundleFailedError: user code raised.
    """
    harness = job.stage(program, frozenset())
    (collection,) = harness.output_coders
    taken = _Taken()
    try:
        bundle = harness.start_bundle({collection: taken}, {})
    except BundleFailedError:
        job.discard(program.stage)
        raise
    try:
        bundle.enter()
        bundle.push([each.value for each in elements], [*elements])
        result = bundle.finish()
    except BaseException:
        bundle.abort()
        job.discard(program.stage)
        raise
    return taken.values, result.monitoring_infos


class _Taken:
    """See ``Receiver``."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def accept(self, windowed_value: WindowedValue) -> None:
        self.values.append(windowed_value.value)

    def accept_chunk(self, values: list[Any], origins: list[WindowedValue]) -> None:
        self.values += values
