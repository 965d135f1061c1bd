"""A stage whose root is a splittable DoFn: one bundle after another."""

import abc
from collections.abc import Callable, Iterable, Sequence

from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner._generated.backchannel_pb2 import Deferred
from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.engine.program import BatchPart
from beam_spark_runner.engine.rows.cursor import RowCursor
from beam_spark_runner.engine.rows.readers import ElementRowReader, RestrictionReader
from beam_spark_runner.engine.rows.writers import ResidualWriter
from beam_spark_runner.engine.task.open_stage import OpenStage, charged_to
from beam_spark_runner.harness.bundle import Bundle, BundleResult
from beam_spark_runner.harness.sdf.epoch_input import EpochRestrictions
from beam_spark_runner.harness.sdf.splittable import Budget, SplittableInput
from beam_spark_runner.portable.monitoring import merge
from beam_spark_runner.scheduling.attempts import Residuals

_MOST_INFOS = 1_000
_MOST_PIECES = 16  # of a restriction in one round; on a larger cluster it takes another round


class OpenSplittable(OpenStage):
    """A stage whose restrictions are processed in one bundle after another."""

    _input: SplittableInput | EpochRestrictions
    _reader: ElementRowReader

    def _open_input(self, now_us: Callable[[], int]) -> None:
        self._infos: list[bytes] = []
        self._open_restrictions(now_us)

    @abc.abstractmethod
    def _open_restrictions(self, now_us: Callable[[], int]) -> None:
        """Set ``_input`` and ``_reader``."""

    @property
    def step(self) -> TransformId:
        """The id of the splittable DoFn."""
        return next(iter(self.program.description.step_names))

    def progress(self) -> Sequence[bytes]:
        """See ``Bundle.progress``."""
        return [*self._infos, *self._input.progress()]

    @property
    def bundle(self) -> Bundle | None:
        """See ``OpenStage.bundle``."""
        return self._input.bundle

    def read(self, cursor: RowCursor) -> None:
        """See ``OpenStage.read``."""
        with charged_to(self.program.name):
            self._reader.read(cursor)

    def _count(self, result: BundleResult) -> None:
        self._keep_callbacks(result)
        self._infos += result.monitoring_infos
        if len(self._infos) > _MOST_INFOS:
            self._infos = list(merge(self._infos))

    def finish(self) -> Iterable[bytes]:
        """Emit the last rows; all bundles have finished."""
        with charged_to(self.program.name):
            self._flush()
        return merge(self._infos)

    def abort(self) -> None:
        """See ``OpenStage.abort``."""
        self._input.abort()


class SplittableInRounds(OpenSplittable):
    """Processes restrictions until none is left, or the round ends: then it emits the rest."""

    _input: SplittableInput

    def _open_restrictions(self, now_us: Callable[[], int]) -> None:
        self._residuals: ResidualWriter | None = None
        self.left = Residuals(0, MAX_US)  # for a later Spark job
        batch = self._level.batch or BatchPart()
        budget_us = batch.round_budget_us
        self._input = SplittableInput(
            start_bundle=self._start_bundle,
            on_completed=self._count,
            input_coder=self._harness.input_coder,
            collection=self.program.collection,
            now_us=now_us,
            budget=None
            if budget_us is None
            else Budget(
                duration_us=budget_us,
                pieces=min(self._level.partitions, _MOST_PIECES),
                leave=self._leave,
                leaves_several=batch.leaves_several,
            ),
        )
        self._reader = RestrictionReader(self.program.input, self._harness.input_coder, self._input)

    def deferred(self) -> Deferred:
        """Return how many restrictions wait in this task, and the least of their holds."""
        return Deferred(count=self._input.pending(), hold_us=self._input.watermark_hold_us())

    def _leave(self, element: WindowedValue, due_us: int, hold_us: int) -> None:
        if self._residuals is None:
            self._residuals = ResidualWriter(
                self.program.input, self._harness.input_coder, self._outlet
            )
            self._writers.append(self._residuals)
        self._residuals.accept_residual(element, due_us)
        self.left = Residuals(self.left.count + 1, min(self.left.hold_us, hold_us))

    def run_due(self) -> bool:
        """See ``splittable.Deferring``."""
        with charged_to(self.program.name):
            return self._input.run_due()

    def next_due_us(self) -> int | None:
        """See ``splittable.Deferring``."""
        return self._input.next_due_us()
