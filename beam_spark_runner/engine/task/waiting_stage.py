"""Stages that have side inputs: elements wait in the shard until the side inputs are ready."""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.engine.program import Edge, WindowMapping
from beam_spark_runner.engine.rows.readers import reader_for
from beam_spark_runner.engine.task.epoch_stage import EpochStage
from beam_spark_runner.engine.task.open_stage import JoinedInput, charged_to
from beam_spark_runner.engine.task.side_windows import MapWindows, window_mapper
from beam_spark_runner.engine.task.stage_inputs import InputFromWithin
from beam_spark_runner.harness.bundle import BundleInput
from beam_spark_runner.harness.failures import charge
from beam_spark_runner.harness.waiting import WaitingElements
from beam_spark_runner.plan.model import Delivery, Stored
from beam_spark_runner.portable.window_mapping import SideWindow
from beam_spark_runner.semantics.timers import expiry_us
from beam_spark_runner.semantics.watermarks import lower


class StageWithSideInputs(EpochStage):
    """A stage whose elements wait until its side inputs, if it has any, are ready."""

    @property
    def _gets_panes(self) -> bool:
        """Whether the input is panes. They are never late: they may fire epochs after their end."""
        return self.program.input.delivery is Delivery.GROUP_BY_KEY

    def _wait_in_front(self) -> None:
        """Set ``_waiting``, ``_looks_up`` and ``_unready_us``."""
        self._waiting: WaitingElements | None = None
        self._looks_up: Sequence[tuple[Edge, WindowMapping, MapWindows]] = ()
        # By destination, the earliest end of the windows that were asked for and are not ready.
        self._unready_us: dict[int, int] = {}
        # See ``graph.passes.await_side_inputs``.
        part = self.program.in_epochs
        if Stored.UNREADY not in part.stores:
            return
        window_coder = self._harness.input_coder.window_coder
        self._looks_up = [
            (edge, mapping, window_mapper(self._job, mapping, window_coder))
            for reader, edge in part.views.items()
            for mapping in (part.mappings[reader],)
        ]
        self._waiting = WaitingElements(
            self._stages.store_of(self.program),
            self._harness.input_coder,
            are_ready=self._are_ready,
            is_expired=self._is_expired,
            late=self._stages.late_of(self.program),
        )

    def begin(self) -> None:
        """Process waiting elements whose side inputs are ready. See ``OpenStage.begin``."""
        if self._waiting is not None:
            with charged_to(self.program.name):
                self._waiting.release(InputFromWithin(self._bundle, self._joined))

    def _input(self) -> BundleInput:
        """Return the input that the reader pushes into."""
        if self._waiting is None:
            return self._joined
        return _WaitingInput(self._waiting, self._joined)

    def push_from_within(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """See ``OpenStage.push_from_within``."""
        if self._waiting is None:
            self._bundle.push_from_within(values, origins)
        else:
            self._waiting.pass_on(self._bundle.push_from_within, values, origins)

    def finish(self) -> Iterable[bytes]:
        """See ``OpenStage.finish``."""
        if self._waiting is not None:
            self.awaited_us = self._unready_us if self._waiting.save() else {}
            self.waiting = self._described(self._waiting)
        return super().finish()

    def _is_expired(self, window: Any) -> bool:
        """Whether elements of a window are dropped because it has expired."""
        return not self._gets_panes and self._stages.is_expired(self.program, window)

    def _are_ready(self, windows: Sequence[Any]) -> Sequence[bool]:
        """Return for each window of the main input whether all side inputs are ready."""
        ready = [True] * len(windows)
        for edge, mapping, to_sides in self._looks_up:
            for index, side in enumerate(to_sides(windows)):
                if not self._stages.has_view(edge, side):
                    ready[index] = False
                    lower(self._unready_us, int(edge.dest), side.end_us)
                if mapping.may_look_back and not mapping.coded_main:
                    self._check_is_kept(mapping, windows[index], side)
        return ready

    def _check_is_kept(self, mapping: WindowMapping, window: Any, side: SideWindow) -> None:
        """Raise a BundleFailedError if the content of a window may have been deleted.

        See ``looked_up_from_us``, which needs to know windows before they come.
        """
        if not self._stages.is_over(self.program, side.end_us):
            return
        if self._gets_panes:  # panes hold back the deletion until their window is over
            lateness_us = self.program.in_epochs.lateness_us
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

    def _described(self, waiting: WaitingElements) -> reports_pb2.Waiting | None:
        """Return which elements wait for which side inputs; None: none wait."""
        if (earliest := waiting.earliest()) is None:
            return None
        window, coded, hold_us = earliest
        missing = {
            int(edge.dest)
            for edge, _, to_sides in self._looks_up
            if not self._stages.has_view(edge, to_sides([window])[0])
        }
        return reports_pb2.Waiting(hold_us=hold_us, window=coded, views=sorted(missing))


class WaitingStage(StageWithSideInputs):
    """A stage without keys that has side inputs."""

    def _open_input(self, now_us: Callable[[], int]) -> None:
        self._bundle = self._start_bundle()
        self._joined = JoinedInput(self._bundle, self._following)
        self._wait_in_front()
        self._reader = reader_for(
            self.program.input, self._harness.input_coder, self._input(), self._logs
        )

    def run_due(self) -> None:
        """See ``EpochStage.run_due``: ``begin`` has processed the elements that were ready."""


class _WaitingInput:
    """See ``BundleInput``."""

    def __init__(self, waiting: WaitingElements, bundle: BundleInput) -> None:
        self.push = functools.partial(waiting.pass_on, bundle.push)
        self.flush = bundle.flush
        self.advance_key = bundle.advance_key
