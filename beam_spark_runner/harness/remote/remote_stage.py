"""A stage on an SDK harness in another process, over the Fn API."""

import functools
import hashlib
from collections.abc import Mapping

from apache_beam.coders import WindowedValueCoder
from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2

from beam_spark_runner.backchannel.log_lines import STDERR, LogSink
from beam_spark_runner.core.errors import EnvironmentStartError
from beam_spark_runner.core.ids import PCollectionId, TransformId
from beam_spark_runner.harness.beam.chunked_steps import use_chunks
from beam_spark_runner.harness.beam.plugin.block_edges import mark_lines, use_blocks, use_keys_here
from beam_spark_runner.harness.bundle import Bundle, Receiver, SideInputLookup
from beam_spark_runner.harness.remote.key_timers import declared_timers
from beam_spark_runner.harness.remote.keyed_bundle import RemoteKeyedBundle, TimersTaker, UserState
from beam_spark_runner.harness.remote.remote_bundle import RemoteBundle
from beam_spark_runner.harness.remote.sdk_harnesses import sdk_harnesses
from beam_spark_runner.harness.remote.settings import HarnessSettings
from beam_spark_runner.portable.environment_facts import (
    has_our_package,
    names_keys_of_multimaps,
    sdk_of,
)
from beam_spark_runner.portable.stage_description import StageDescription
from beam_spark_runner.portable.wire import coder_seen_by_the_runner
from beam_spark_runner.state.backend import StateBackend
from beam_spark_runner.state.memory import MemoryState
from beam_spark_runner.state.policy import BATCH, KeyPolicy
from beam_spark_runner.state.requests import (
    MULTIMAP,
    StateRequests,
    declared_states,
    use_maps,
    value_counter,
)


class RemoteStage:
    """See ``StageHarness``. The SDK harness reuses the DoFns from bundle to bundle."""

    def __init__(
        self,
        name: str,
        description: StageDescription,
        settings: HarnessSettings,
        stage_id: int,
        log_sink: LogSink = STDERR,
        side_inputs: frozenset[str] = frozenset(),
    ) -> None:
        self.side_inputs = side_inputs  # ids of side inputs whose views the harness keeps
        self._name = name
        self._description = description
        self._settings = settings
        self._stage_id = stage_id
        self._log_sink = log_sink  # takes the log lines of the harness
        self._descriptor = description.descriptor()
        content = description.coded_descriptor + repr(sorted(side_inputs)).encode()
        digest = hashlib.sha256(content).hexdigest()[:16]
        self._id = f"{settings.job_id}/{stage_id}/{digest}"
        environment = beam_runner_api_pb2.Environment.FromString(description.coded_environment)
        self._runs_our_steps = has_our_package(environment)
        if self._runs_our_steps:
            use_maps(self._descriptor)
        self._sdk = sdk_of(environment)
        self._input_coder = self._coder(description.source)
        self._output_coders = {
            collection: self._coder(sink) for sink, collection in description.sinks.items()
        }
        self._timers = declared_timers(self._descriptor, self._input_coder)
        self._states = declared_states(self._descriptor)
        self._mixes_keys = not names_keys_of_multimaps(environment) and any(
            state.protocol == MULTIMAP for state in self._states.values()
        )
        # A harness that has this package can keep state in memory, without state requests.
        self._may_keep_keys_there = False
        if self._runs_our_steps and (self._states or self._timers.families):
            descriptor = self._descriptor_for("localhost", keeps_keys_there=False)
            self._may_keep_keys_there = use_keys_here(descriptor)

    def _coder(self, edge: TransformId) -> WindowedValueCoder:
        port = beam_fn_api_pb2.RemoteGrpcPort.FromString(
            self._descriptor.transforms[edge].spec.payload
        )
        return coder_seen_by_the_runner(self._descriptor, port.coder_id)

    @property
    def input_coder(self) -> WindowedValueCoder:
        return self._input_coder

    @property
    def output_coders(self) -> Mapping[PCollectionId, WindowedValueCoder]:
        return self._output_coders

    def start_bundle(
        self,
        receivers: Mapping[PCollectionId, Receiver],
        side_inputs: Mapping[tuple[str, str], SideInputLookup],
        policy: KeyPolicy = BATCH,
    ) -> Bundle:
        """See ``StageHarness.start_bundle``. Errors of ``setup`` may be raised by later calls.

        Raises:
            EnvironmentStartError: No harness can be started.
        """
        is_keyed = bool(self._states or self._timers.families)
        # State for later bundles, perhaps in other harnesses, cannot be kept in the harness.
        keeps_keys_there = self._may_keep_keys_there and policy.store is None
        if not is_keyed or keeps_keys_there:
            return self._start(receivers, side_inputs, keeps_keys_there=keeps_keys_there)
        return RemoteKeyedBundle(
            functools.partial(self._start, receivers, side_inputs),
            functools.partial(self._user_state, policy.store),
            self._timers,
            self._sdk,
            policy,
            one_key_at_a_time=self._mixes_keys,
        )

    def _user_state(self, store: StateBackend | None) -> UserState:
        if store is None:
            store = MemoryState(value_counter(self._descriptor, self._states))
        return UserState(StateRequests(store, self._states, self._description.step_names))

    def _start(
        self,
        receivers: Mapping[PCollectionId, Receiver],
        side_inputs: Mapping[tuple[str, str], SideInputLookup],
        user_state: UserState | None = None,
        take_timers: TimersTaker | None = None,
        *,
        keeps_keys_there: bool = False,
    ) -> RemoteBundle:
        try:
            worker = sdk_harnesses.acquire(
                self._description.coded_environment, self._settings, self._stage_id, self._log_sink
            )
        except EnvironmentStartError as error:
            raise EnvironmentStartError(f"{self._name}: {error.problem}", error.output) from error
        return RemoteBundle(
            self._name,
            self._description,
            self._descriptor_for(worker.url, keeps_keys_there=keeps_keys_there),
            worker,
            self._input_coder,
            {
                sink: (self._output_coders[collection], receivers[collection])
                for sink, collection in self._description.sinks.items()
            },
            side_inputs,
            user_state,
            () if keeps_keys_there else self._timers.families,
            take_timers,
            marks_keys=keeps_keys_there,
            claim_timeout_s=self._settings.stuck_s,
        )

    def _descriptor_for(
        self, url: str, *, keeps_keys_there: bool
    ) -> beam_fn_api_pb2.ProcessBundleDescriptor:
        descriptor = self._description.descriptor(url)
        descriptor.id = f"{self._id}/keys" if keeps_keys_there else self._id
        if self._runs_our_steps:
            use_maps(descriptor)
            use_chunks(descriptor, self._settings.step_chunks)
            if not self._description.is_splittable:  # Beam's source counts elements one by one
                use_blocks(descriptor)
            mark_lines(descriptor)
        if keeps_keys_there:
            use_keys_here(descriptor)
        return descriptor
