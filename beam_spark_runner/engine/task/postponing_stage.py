"""Stages that store their input before they process it: stable input, and time-sorted input."""

import functools
from collections.abc import Callable, Iterable
from typing import Any, cast

from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.time import MIN_US
from beam_spark_runner.engine.rows.readers import reader_for
from beam_spark_runner.engine.task.epoch_stage import EpochStage
from beam_spark_runner.engine.task.open_stage import JoinedInput, charged_to
from beam_spark_runner.engine.task.stage_inputs import InputFromWithin, JoinedSteppedInput
from beam_spark_runner.harness.bundle import SteppedInput
from beam_spark_runner.harness.stable import StableElements
from beam_spark_runner.harness.time_sorted import TimeSortedElements
from beam_spark_runner.plan.model import Stored
from beam_spark_runner.semantics.timers import NEVER_US
from beam_spark_runner.state.policy import KeyPolicy


class _PostponingStage(EpochStage):
    """A stage whose reader stores elements in the shard."""

    _elements: StableElements | TimeSortedElements

    def _open_reader(self) -> None:
        """Set ``_reader``. ``_elements`` must be set."""
        self._reader = reader_for(
            self.program.input, self._harness.input_coder, self._elements, self._logs
        )

    def push_from_within(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """See ``OpenStage.push_from_within``."""
        self._elements.push(values, origins)

    def finish(self) -> Iterable[bytes]:
        """See ``OpenStage.finish``."""
        if isinstance(self._elements, StableElements):
            self.awaits_commit = self._elements.save()
        return super().finish()


class StableStage(_PostponingStage):
    """A stage without keys that requires stable input."""

    def _open_input(self, now_us: Callable[[], int]) -> None:
        self._bundle = self._start_bundle()
        self._joined = JoinedInput(self._bundle, self._following)
        self._elements = StableElements(
            self._stages.store_of(self.program),
            self._harness.input_coder,
            is_expired=lambda window: False,  # without keys, no state of a window can expire
            late=self._stages.late_of(self.program),
            is_keyed=False,
        )
        self._open_reader()

    def begin(self) -> None:
        """Process the elements that an earlier epoch has stored. See ``OpenStage.begin``."""
        assert isinstance(self._elements, StableElements)
        with charged_to(self.program.name):
            self._elements.release(InputFromWithin(self._bundle, self._joined))

    def run_due(self) -> None:
        """See ``EpochStage.run_due``: ``begin`` has processed the stored elements."""


class PostponingKeyedStage(_PostponingStage):
    """A stage with keys that requires stable input, or time-sorted input, or both.

    With stable input, it processes stored elements and advances time before it reads new elements:
    then both depend only on what an earlier epoch has committed. Its timers are not interrupted: an
    epoch that runs again fires the same ones.
    """

    def _open_input(self, now_us: Callable[[], int]) -> None:
        stages = self._stages
        program, coder = self.program, self._harness.input_coder
        self._epoch = epoch = stages.epoch_of(program)
        self._bundle = self._start_bundle(
            # Elements that were stored in time are never late.
            KeyPolicy(
                epoch.now,
                epoch.store,
                MIN_US,
                clock_us=epoch.before.clock_us if stages.epoch.clock_stands else None,
                dropped=stages.dropped_of(program),
            )
        )
        self._keys: SteppedInput | None = None
        self._joined: JoinedInput
        if program.description.has_states or program.description.has_timers:
            bundle = cast(SteppedInput, self._bundle)
            self._joined = self._keys = JoinedSteppedInput(bundle, self._bundle, self._following)
        else:
            self._joined = JoinedInput(self._bundle, self._following)
        is_expired = functools.partial(stages.is_expired, program)
        if Stored.UNSORTED in program.in_epochs.stores:
            self._elements = TimeSortedElements(
                epoch.store,
                coder,
                late_before_us=epoch.before.watermark_us,
                is_expired=is_expired,
                late=epoch.late,
                has_timers=program.description.has_timers,
            )
        else:
            self._elements = StableElements(
                epoch.store, coder, is_expired=is_expired, late=epoch.late, is_keyed=True
            )
        self._open_reader()

    def begin(self) -> None:
        """See ``OpenStage.begin``."""
        if Stored.UNCOMMITTED in self.program.in_epochs.stores:
            self._advance()

    def run_due(self) -> None:
        """Advance the time of all keys that have elements or timers due."""
        if Stored.UNCOMMITTED not in self.program.in_epochs.stores:
            self._advance()

    def _advance(self) -> None:
        store, now = self._epoch.store, self._epoch.now
        with charged_to(self.program.name):
            self._bundle.enter()
            if isinstance(self._elements, StableElements):
                self._elements.release(self._joined)
            for _, key in store.due(NEVER_US, now.clock_us):
                self._advance_key(key)
            for _, key in store.due(now.watermark_us, NEVER_US):
                self._advance_key(key)

    def _advance_key(self, key: bytes) -> None:
        if isinstance(self._elements, TimeSortedElements):
            until_us = self._epoch.now.watermark_us
            self._elements.process(key, self._joined, self._keys, until_us)
        else:
            assert self._keys is not None
            self._keys.begin_key(key)
            self._keys.advance_key()
