"""Merges accumulators that are stored in the shard, in separate bundles."""

from collections.abc import Sequence
from typing import Any

from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.errors import BundleFailedError
from beam_spark_runner.spark.program import StageProgram
from beam_spark_runner.spark.task.worker_runtime import JobRuntime


class AccumulatorMerger:
    """Has the SDK merge accumulators, whatever harness it runs in.

    Args:
        job: of the task.
        program: of the stage that merges, see ``StageProgram.merger``.

    Attributes:
        infos: monitoring infos of all bundles.
    """

    def __init__(self, job: JobRuntime, program: StageProgram) -> None:
        self._job = job
        self._program = program
        self.infos: list[bytes] = []

    def merged(self, groups: Sequence[WindowedValue]) -> list[Any]:
        """Merge the accumulators of each group.

        Args:
            groups: elements KV<key, accumulators>, each in one window.

        Returns:
            An accumulator for each.

        Raises:
            BundleFailedError: the CombineFn raised.
        """
        harness = self._job.stage(self._program, frozenset())
        (collection,) = harness.output_coders
        taken = _Taken()
        try:
            bundle = harness.start_bundle({collection: taken}, {})
        except BundleFailedError:
            self._job.discard(self._program.stage)
            raise
        try:
            bundle.enter()
            bundle.push([group.value for group in groups], [*groups])
            self.infos += bundle.finish().monitoring_infos
        except BaseException:
            bundle.abort()
            self._job.discard(self._program.stage)
            raise
        return taken.accumulators


class _Taken:
    """See ``Receiver``. Outputs come in the order of the groups."""

    def __init__(self) -> None:
        self.accumulators: list[Any] = []

    def accept(self, windowed_value: WindowedValue) -> None:
        self.accumulators.append(windowed_value.value[1])

    def accept_chunk(self, values: list[Any], origins: list[WindowedValue]) -> None:
        self.accumulators += [accumulator for _, accumulator in values]
