"""Processes the restrictions of a splittable DoFn in one bundle after another."""

from collections.abc import Callable, Sequence

from typing_extensions import override

from beam_spark_runner.engine.stages.operator import Operator
from beam_spark_runner.engine.stages.outcome import Outcome
from beam_spark_runner.harness.bundle import Bundle, BundleResult
from beam_spark_runner.harness.sdf.epoch_input import EpochRestrictions
from beam_spark_runner.harness.sdf.splittable import SplittableInput
from beam_spark_runner.portable.monitoring import merge

_MAX_INFOS = 1_000


class BundlesInTurn(Operator):
    """Processes restrictions in one bundle after another.

    Args:
        make_input: makes the input, which runs the bundles. It gets a function to which each
            bundle's result is passed.
    """

    input: SplittableInput | EpochRestrictions

    def __init__(
        self,
        make_input: Callable[[Callable[[BundleResult], None]], SplittableInput | EpochRestrictions],
    ) -> None:
        super().__init__()
        self._infos: list[bytes] = []
        self.input = make_input(self._count)

    @override
    def enter(self) -> None:
        """See ``Operator.enter``: the input enters its bundles."""

    @property
    @override
    def bundle(self) -> Bundle | None:
        return self.input.bundle

    @override
    def progress(self) -> Sequence[bytes]:
        return [*self._infos, *self.input.progress()]

    def _count(self, result: BundleResult) -> None:
        self.callbacks += result.callbacks
        self._infos += result.monitoring_infos
        if len(self._infos) > _MAX_INFOS:
            self._infos = list(merge(self._infos))

    @override
    def finish(self, outcome: Outcome) -> list[bytes]:
        """See ``Operator.finish``: all bundles have finished."""
        return list(merge(self._infos))

    @override
    def abort(self) -> None:
        self.input.abort()
