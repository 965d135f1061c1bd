"""Elements of a step that has side inputs: they wait until the side inputs are ready."""

from collections.abc import Sequence
from typing import Any

from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue
from typing_extensions import override

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.engine.program import WindowMapping
from beam_spark_runner.engine.stages.context import StageContext
from beam_spark_runner.engine.stages.gates.gate import Gate
from beam_spark_runner.engine.stages.operator import OneBundle
from beam_spark_runner.engine.stages.outcome import Outcome
from beam_spark_runner.engine.stages.siblings import StagesOfEpoch
from beam_spark_runner.engine.stages.side_windows import window_mapper
from beam_spark_runner.harness.failures import charge
from beam_spark_runner.harness.waiting import WaitingElements
from beam_spark_runner.portable.window_mapping import SideWindow
from beam_spark_runner.semantics.timers import expiry_us
from beam_spark_runner.semantics.watermarks import lower


class AwaitView(Gate):
    """Passes on elements whose side inputs are ready, and stores the others. A ``BundleInput``.

    See ``graph.passes.await_side_inputs``.

    Args:
        context: the stage.
        operator: processes the elements.
    """

    def __init__(self, context: StageContext[StagesOfEpoch], operator: OneBundle) -> None:
        self._program, self._task = context.program, context.task
        self._operator = operator
        self.flush = operator.input.flush
        self.advance_key = operator.input.advance_key
        part = context.program.in_epochs
        self._looks_up = [
            (edge, mapping, window_mapper(context.job, mapping, context.input_coder.window_coder))
            for reader, edge in part.views.items()
            for mapping in (part.mappings[reader],)
        ]
        # By destination, the earliest end of the windows that were asked for and are not ready.
        self._unready_us: dict[int, int] = {}
        self._gets_panes = context.gets_panes
        self._waits = False
        self._elements = WaitingElements(
            self._task.store_of(context.program),
            context.input_coder,
            are_ready=self._are_ready,
            is_expired=self._is_expired,
            late=self._task.late_of(context.program),
        )

    def push(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """See ``BundleInput.push``."""
        self._elements.pass_on(self._operator.input.push, values, origins)

    def push_from_within(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """See ``Bundle.push_from_within``."""
        self._elements.pass_on(self._operator.bundle.push_from_within, values, origins)

    @override
    def begin(self) -> None:
        self._elements.release(self._operator.from_within())

    @override
    def save(self) -> None:
        self._waits = self._elements.save()

    @override
    def report(self, outcome: Outcome) -> None:
        if self._waits:
            outcome.awaited_us = self._unready_us
        outcome.waiting = self._describe_waiting()

    def _is_expired(self, window: Any) -> bool:
        """Whether elements of a window are dropped because it has expired."""
        return not self._gets_panes and self._task.is_expired(self._program, window)

    def _are_ready(self, windows: Sequence[Any]) -> Sequence[bool]:
        """Return for each window of the main input whether all side inputs are ready."""
        ready = [True] * len(windows)
        for edge, mapping, to_sides in self._looks_up:
            for index, side in enumerate(to_sides(windows)):
                if not self._task.has_view(edge, side):
                    ready[index] = False
                    lower(self._unready_us, int(edge.dest), side.end_us)
                if mapping.may_look_back and not mapping.coded_main:
                    self._check_is_kept(mapping, windows[index], side)
        return ready

    def _check_is_kept(self, mapping: WindowMapping, window: Any, side: SideWindow) -> None:
        """Raise a BundleFailedError if the content of a window may have been deleted.

        See ``looked_up_from_us``, which needs to know windows before they come.
        """
        if not self._task.is_over(self._program, side.end_us):
            return
        if self._gets_panes:  # panes hold back the deletion until their window is over
            lateness_us = self._program.in_epochs.lateness_us
            expires_us = expiry_us(side.end_us, lateness_us)
            is_kept = expires_us >= window.max_timestamp().micros + lateness_us
        else:
            is_kept = self._is_expired(window)
        if not is_kept:
            error = LookupError(
                f"the window {window} maps to a window of the side input that ended at "
                f"{Timestamp(micros=side.end_us)}, and whose values may have been deleted since: "
                "windows that have ended can be looked up from fixed, sliding and global windows "
                "only"
            )
            charge(error, mapping.step)

    def _describe_waiting(self) -> reports_pb2.Waiting | None:
        """Return which elements wait for which side inputs; None: none wait."""
        if (earliest := self._elements.earliest()) is None:
            return None
        window, coded, hold_us = earliest
        unready = {
            int(edge.dest)
            for edge, _, to_sides in self._looks_up
            if not self._task.has_view(edge, to_sides([window])[0])
        }
        return reports_pb2.Waiting(hold_us=hold_us, window=coded, views=sorted(unready))
