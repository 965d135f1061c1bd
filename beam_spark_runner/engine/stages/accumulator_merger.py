"""Merges accumulators that are stored in the shard, in separate bundles."""

from collections.abc import Sequence
from typing import Any

from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.engine.program import HelperProgram
from beam_spark_runner.engine.worker.helper_bundle import run_helper
from beam_spark_runner.engine.worker.runtime import JobRuntime


class AccumulatorMerger:
    """Has the SDK merge accumulators, whatever harness it runs in.

    Args:
        job: the runtime of the job that the task belongs to.
        program: the program that merges them, see ``StageInEpochs.merger``.

    Attributes:
        infos: monitoring infos of all bundles.
    """

    def __init__(self, job: JobRuntime, program: HelperProgram) -> None:
        self._job = job
        self._program = program
        self.infos: list[bytes] = []

    def merge(self, groups: Sequence[WindowedValue]) -> list[Any]:
        """Merge the accumulators of each group.

        Args:
            groups: elements KV<key, accumulators>, each in one window.

        Returns:
            The merged accumulator of each group.

        Raises:
            BundleFailedError: the CombineFn raised.
        """
        elements, infos = run_helper(self._job, self._program, groups)
        self.infos += infos
        return [accumulator for _, accumulator in (element.value for element in elements)]
