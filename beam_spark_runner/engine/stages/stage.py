"""A stage while a task runs it: a chain of gates around an operator."""

from collections.abc import Callable, Sequence
from typing import Any

from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.callbacks import Callbacks
from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.engine.program import StageProgram
from beam_spark_runner.engine.rows.coder_errors import Reader
from beam_spark_runner.engine.rows.cursor import RowCursor
from beam_spark_runner.engine.stages.batch_rounds import Rounds
from beam_spark_runner.engine.stages.charging import charged_to
from beam_spark_runner.engine.stages.context import StageContext
from beam_spark_runner.engine.stages.gates.gate import Gate
from beam_spark_runner.engine.stages.operator import Operator
from beam_spark_runner.engine.stages.outcome import Outcome
from beam_spark_runner.engine.stages.siblings import StagesOfTask
from beam_spark_runner.harness.bundle import Bundle
from beam_spark_runner.portable.step_figures import without_counts_of

Push = Callable[[list[Any], list[WindowedValue]], None]


class Stage:
    """A stage while a task runs it.

    A reader turns rows into elements and pushes them into the first gate, and the last gate pushes
    those that need not wait into the operator. In batch there are no gates. ``opening`` decides
    of which parts a stage consists.

    It is opened by its first element or, in an epoch, because something in its store is due. The
    calls are then: ``begin``; ``read`` and ``push_from_within`` for elements, in any order;
    ``run_due`` in an epoch, once, after the last element; ``finish``. ``abort`` may replace any
    call after the first.

    Args:
        context: what its parts have in common.
        operator: processes the elements.
        reader: reads rows.
        push_from_within: takes the elements that another stage of the task emits while its bundle
            runs; None: the stage reads rows only.
        gates: where elements wait, in the order in which elements pass them.
        is_stable: what is due is processed before the stage gets elements, so that it depends only
            on what earlier epochs have committed (``@RequiresStableInput``).
        rounds: the operator, if it may leave restrictions to a later Spark job; else None.

    Attributes:
        program: the program of the stage.
        push_from_within: see the argument.
        rounds: see the argument.
        outcome: what the stage reports of the epoch; complete once ``finish`` has run.
    """

    def __init__(
        self,
        context: StageContext[StagesOfTask],
        operator: Operator,
        reader: Reader,
        *,
        push_from_within: Push | None = None,
        gates: Sequence[Gate] = (),
        is_stable: bool = False,
        rounds: Rounds | None = None,
    ) -> None:
        self.program: StageProgram = context.program
        self.push_from_within: Push = push_from_within or self._refuse
        self.rounds = rounds
        self.outcome = Outcome()
        self._outputs = context.outputs
        self._operator = operator
        self._reader = reader
        self._gates = gates
        self._is_stable = is_stable

    def _refuse(self, values: list[Any], origins: list[WindowedValue]) -> None:
        raise InvariantError(f"{self.program.name} was given elements of another bundle")

    def begin(self) -> None:
        """Do the work that precedes all input. If it raises, the stage is aborted."""
        with charged_to(self.program.name):
            for gate in self._gates:
                gate.begin()
            if self._is_stable:
                self._run_due()

    def read(self, cursor: RowCursor) -> None:
        """Process a run of rows.

        Raises:
            BundleFailedError: user code, or a coder, raised.
        """
        with charged_to(self.program.name):
            self._operator.enter()
            self._reader.read(cursor)

    def text_of_key(self, column: bytes) -> str:
        """See ``Reader.text_of_key``."""
        return self._reader.text_of_key(column)

    def flush(self) -> None:
        """Process elements that are buffered, in this stage and downstream."""
        self._operator.input.flush()

    def run_due(self) -> None:
        """Process what is due in the store, once all elements have been read."""
        if not self._is_stable:
            with charged_to(self.program.name):
                self._run_due()

    def _run_due(self) -> None:
        for gate in self._gates:
            gate.run_due()
        self._operator.settle()

    def finish(self) -> Sequence[bytes]:
        """Finish the bundle and emit its last rows.

        Returns:
            Monitoring infos.
        """
        with charged_to(self.program.name):
            for gate in self._gates:
                gate.save()
            infos = self._operator.finish(self.outcome)
            self._outputs.flush_writers()
        for gate in self._gates:
            gate.report(self.outcome)
        return self._without_foreign_counts([*infos, *self.outcome.monitoring_infos])

    def progress(self) -> Sequence[bytes]:
        """See ``Bundle.progress``. Threads: any."""
        return self._without_foreign_counts(self._operator.progress())

    def _without_foreign_counts(self, infos: Sequence[bytes]) -> Sequence[bytes]:
        elsewhere = self.program.counted_elsewhere
        return infos if elsewhere is None else without_counts_of(elsewhere, infos)

    @property
    def bundle(self) -> Bundle | None:
        """The bundle that runs now; None: there is none. Threads: any."""
        return self._operator.bundle

    @property
    def callbacks(self) -> Sequence[Callbacks]:
        """Those of bundle finalization that user code has registered so far."""
        return self._operator.callbacks

    def abort(self) -> None:
        """End without a result."""
        self._operator.abort()
