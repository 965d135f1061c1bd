"""One bundle on an SDK harness in another process.

The bundle's thread does everything except sending and receiving bytes. It encodes inputs, and
exchanges messages with the harness, see ``exchange``.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from apache_beam.coders import WindowedValueCoder
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.errors import FnApiProtocolError, RunnerError
from beam_spark_runner.core.ids import PCollectionId, TimerFamilyId, TransformId
from beam_spark_runner.harness.beam.plugin.block_edges import LOG_MARK_URN, writer_of
from beam_spark_runner.harness.bundle import Activity, BundleResult, Receiver, SideInputLookup
from beam_spark_runner.harness.fn_api.services.state_service import BundleState
from beam_spark_runner.harness.remote.bundle_input import RemoteInput
from beam_spark_runner.harness.remote.bundle_messages import Exchange
from beam_spark_runner.harness.remote.cache_tokens import side_input_tokens, user_state_token
from beam_spark_runner.harness.remote.finalization import RemoteCallbacks
from beam_spark_runner.harness.remote.keyed_bundle import TimersTaker, UserState
from beam_spark_runner.harness.remote.pushed import InvalidSplitError, PushedElements
from beam_spark_runner.harness.remote.sdk_harness import ConnectedHarness
from beam_spark_runner.harness.remote.sdk_harnesses import sdk_harnesses
from beam_spark_runner.harness.remote.sdk_residuals import ResidualChecks
from beam_spark_runner.portable.stage_description import StageDescription

_ADDED_AT_ONCE = 1024
_SPLIT_TIMEOUT_S = 120.0  # SDKs split at once, or as soon as a tracker has its lock
_LAST_LINES_S = 1.0


class RemoteBundle:
    """See ``Bundle``."""

    def __init__(
        self,
        name: str,
        description: StageDescription,
        descriptor: beam_fn_api_pb2.ProcessBundleDescriptor,
        worker: ConnectedHarness,
        input_coder: WindowedValueCoder,
        sinks: Mapping[TransformId, tuple[WindowedValueCoder, Receiver]],
        side_inputs: Mapping[tuple[str, str], SideInputLookup],
        user_state: UserState | None,
        families: Collection[TimerFamilyId],
        take_timers: TimersTaker | None,
        *,
        marks_keys: bool = False,
        claim_timeout_s: float = 0.0,
    ) -> None:
        self._name = name
        self._source = description.source
        self._worker = worker
        self._connection = worker.connection
        tokens = side_input_tokens(side_inputs)
        if user_state is None:
            state = BundleState(side_inputs)
        else:
            state = BundleState(side_inputs, user_state.requests, on_pages=user_state.forget_cached)
            tokens.append(user_state_token(user_state.cache_token))
        self._marks_keys = marks_keys
        self._claim_timeout_s = claim_timeout_s
        self._is_splittable = description.is_splittable
        self._residuals = ResidualChecks(input_coder) if self._is_splittable else None
        self._metrics = worker.metrics
        self._pushed = PushedElements(descriptor, description.source)
        self._exchange = Exchange(
            name, description, descriptor, worker, sinks, families, take_timers, state, tokens
        )
        self._instruction = self._exchange.instruction
        self._input = RemoteInput(
            self._instruction,
            self._source,
            input_coder,
            writer_of(descriptor, self._source, input_coder),
            state,
            marks_keys=marks_keys,
        )

    def push(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """See ``BundleInput.push``."""
        if self._is_splittable:
            for value, origin in zip(values, origins, strict=True):
                self._input.add([value], [origin])
                if self._pushed.add(self._input.unsent()):
                    self.flush()  # a block for each element, so that the SDK can split between
                else:
                    self._input.drop()
            return
        for start in range(0, len(values), _ADDED_AT_ONCE):
            end = start + _ADDED_AT_ONCE
            self._input.add(values[start:end], origins[start:end])
            if self._input.is_full:
                self.flush()

    def push_from_within(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """See ``Bundle.push_from_within``."""
        self.push(values, origins)

    def enter(self) -> None:
        """Do nothing: the SDK harness has the metrics."""

    def advance_key(self) -> None:
        """See ``BundleInput.advance_key``. State is in the harness or in ``RemoteKeyedBundle``."""
        if not self._marks_keys:
            return
        self._input.end_key()
        if self._input.is_full:
            self.flush()

    def fire(self, family: TimerFamilyId, coded_timers: bytes) -> None:
        """See ``OneBundle.fire``."""
        timers = beam_fn_api_pb2.Elements.Timers(
            instruction_id=self._instruction,
            transform_id=family.transform,
            timer_family_id=family.family,
            timers=coded_timers,
        )
        self._exchange.send(beam_fn_api_pb2.Elements(timers=[timers]), len(coded_timers))

    def flush(self) -> None:
        """Send the elements that were pushed so far."""
        blocks, size = self._input.take_blocks()
        if not blocks:
            return
        self._exchange.send(beam_fn_api_pb2.Elements(data=blocks), size)
        self._exchange.take_arrived()

    def split(
        self, fraction_of_remainder: float
    ) -> Sequence[beam_fn_api_pb2.DelayedBundleApplication]:
        """See ``Bundle.split``."""
        split = beam_fn_api_pb2.ProcessBundleSplitRequest(instruction_id=self._instruction)
        desired = split.desired_splits[self._source]
        desired.fraction_of_remainder = fraction_of_remainder
        desired.estimated_input_elements = len(self._pushed)
        # A claim may hold the tracker's lock for as long as user code may be stuck.
        timeout_s = _SPLIT_TIMEOUT_S + self._claim_timeout_s
        answer = self._exchange.ask(
            beam_fn_api_pb2.InstructionRequest(process_bundle_split=split), timeout_s
        )
        if answer is None:
            return ()  # the next push raises
        response = answer.process_bundle_split
        residuals = self._checked(response.residual_roots)
        try:
            for channel in response.channel_splits:
                residuals += self._pushed.cut(channel)
        except InvalidSplitError as error:
            raise self._exchange.lost(str(error)) from error
        return residuals

    def progress(self) -> Sequence[bytes]:
        """See ``Bundle.progress``."""
        return self._exchange.progress.infos()

    def samples(self) -> Mapping[PCollectionId, Sequence[bytes]]:
        """See ``Bundle.samples``."""
        return self._exchange.progress.samples()

    def activity(self) -> Activity:
        """See ``Bundle.activity``."""
        return self._exchange.activity()

    def status(self) -> str:
        """See ``Bundle.status``."""
        return self._exchange.progress.status()

    def give_up(self, error: RunnerError) -> bool:
        """See ``Bundle.give_up``. The harness is lost."""
        self._connection.lose(error)
        return True

    def finish(self) -> BundleResult:
        self.flush()
        response = self._exchange.complete()
        infos = response.monitoring_infos
        for info in infos:
            if info.urn == LOG_MARK_URN:
                mark = self._metrics.counter(info)
                self._connection.logs.wait_for(mark or 0, _LAST_LINES_S)
        residuals = self._checked(response.residual_roots)
        callbacks: tuple[RemoteCallbacks, ...] = ()
        if response.requires_finalization:
            callbacks = (RemoteCallbacks(self._name, self._instruction, self._worker),)
        self._end(keep=bool(callbacks))
        return BundleResult(
            callbacks=callbacks,
            monitoring_infos=tuple(self._metrics.sound(infos)),
            residual_roots=(*residuals, *self._pushed.too_late()),
        )

    def _checked(
        self, roots: Sequence[beam_fn_api_pb2.DelayedBundleApplication]
    ) -> list[beam_fn_api_pb2.DelayedBundleApplication]:
        if self._residuals is not None:  # else the stage refuses all residuals
            try:
                self._residuals.check(roots)
            except FnApiProtocolError as error:
                raise self._exchange.explained(error) from error
        return [*roots]

    def abort(self) -> None:
        """See ``Bundle.abort``. Kills a harness that has not answered: nothing else stops it."""
        self._end(kill=not self._exchange.has_answered)

    def _end(self, *, kill: bool = False, keep: bool = False) -> None:
        """End the bundle once. ``keep``: ``RemoteCallbacks`` still needs the harness."""
        self._connection.end_bundle(self._instruction)
        worker, self._worker = self._worker, None  # type: ignore[assignment]
        if keep:
            return
        if worker is not None:
            sdk_harnesses.release(worker, kill=kill)
