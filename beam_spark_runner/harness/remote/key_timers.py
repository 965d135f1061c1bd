"""The timers of keys whose elements an SDK harness has processed, in this process.

A harness sends them when its bundle ends, and takes those that fire as the input of a later
one. Keys and windows know nothing of each other: each has a queue of its own, so that one
bundle fires a timer of every one of them.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from apache_beam.coders import Coder
from apache_beam.coders.coder_impl import PaneInfoCoderImpl
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2
from apache_beam.transforms import userstate
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.ids import TimerFamilyId, TransformId
from beam_spark_runner.core.time import whole_milliseconds
from beam_spark_runner.harness.beam.timer_coder import timer_coder
from beam_spark_runner.harness.codec.blocks import TimerCodec
from beam_spark_runner.portable.wire import timer_coders_seen_by_the_runner
from beam_spark_runner.semantics.timers import (
    Domain,
    Instant,
    Timer,
    TimerId,
    TimerQueue,
    expiration_timer,
    expiry_us,
)
from beam_spark_runner.state.backend import StateBackend, StoredTimer

_PANE_CODER = PaneInfoCoderImpl()
_TIME_DOMAIN = beam_runner_api_pb2.TimeDomain
_DOMAINS = {
    _TIME_DOMAIN.EVENT_TIME: Domain.EVENT_TIME,
    _TIME_DOMAIN.PROCESSING_TIME: Domain.PROCESSING_TIME,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFamily:
    """What a DoFn says of the timers of one family."""

    domain: Domain
    codec: TimerCodec


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredTimers:
    """What a stage says of its timers.

    Attributes:
        families: all of them.
        expiration: the family that notifies a DoFn of the end of a key's window.
        allowed_lateness_us: how long windows live on after their end.
        key_coder: of the keys of all timers, as the runner sees them; None: there are no timers.
        window_coder: of their windows.
    """

    families: Mapping[TimerFamilyId, TimerFamily]
    expiration: TimerFamilyId | None
    allowed_lateness_us: int
    key_coder: Coder | None = None
    window_coder: Coder | None = None


def declared_timers(descriptor: beam_fn_api_pb2.ProcessBundleDescriptor) -> DeclaredTimers:
    """Read what a stage says: it has one keyed step, or none."""
    families: dict[TimerFamilyId, TimerFamily] = {}
    expiration, lateness_ms = None, 0
    key: Coder | None = None
    window: Coder | None = None
    for id_, transform in descriptor.transforms.items():
        if transform.spec.urn != common_urns.primitives.PAR_DO.urn:
            continue
        payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
        for name, spec in payload.timer_family_specs.items():
            key, window = timer_coders_seen_by_the_runner(descriptor, spec.timer_family_coder_id)
            families[TimerFamilyId(TransformId(id_), name)] = TimerFamily(
                domain=_DOMAINS[spec.time_domain],
                codec=TimerCodec(key, window, timer_coder(key, window)),
            )
        if payload.timer_family_specs:
            (main,) = (
                collection
                for name, collection in transform.inputs.items()
                if name not in payload.side_inputs
            )
            strategy = descriptor.pcollections[main].windowing_strategy_id
            lateness_ms = descriptor.windowing_strategies[strategy].allowed_lateness
        if payload.on_window_expiration_timer_family_spec:
            expiration = TimerFamilyId(
                TransformId(id_), payload.on_window_expiration_timer_family_spec
            )
    return DeclaredTimers(
        families=families,
        expiration=expiration,
        allowed_lateness_us=lateness_ms * 1000,
        key_coder=key,
        window_coder=window,
    )


class KeyTimers:
    """Which timers are set, by key and window. Threads: the bundle's."""

    def __init__(self, declared: DeclaredTimers) -> None:
        self._declared = declared
        self._queues: dict[tuple[bytes, Hashable], TimerQueue] = {}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def take(self, family: TimerFamilyId, coded_timers: bytes) -> int:
        """Note what an SDK harness has sent: timers that were set and cleared, in their order.

        Returns:
            How many they were.

        Raises:
            MalformedBlockError: they are no timers.
        """
        count = 0
        declared = self._declared.families[family]
        for timer in declared.codec.read(coded_timers):
            count += 1
            for window in timer.windows:
                id_ = TimerId(family.family, timer.dynamic_timer_tag, window)
                queue = self._queue(timer.user_key, window)
                if timer.clear_bit:
                    queue.clear(id_)
                    continue
                queue.set(
                    Timer(
                        id_,
                        declared.domain,
                        whole_milliseconds(timer.fire_timestamp.micros),
                        timer.hold_timestamp.micros,
                        timer.paneinfo,
                    ),
                    expires_us=self._expiry_us(window),
                )
        return count

    def expect_expiry(self, key: bytes, origin: WindowedValue) -> None:
        """Notify the step of the end of the windows of an element of ``key``, if it wants that."""
        expiration = self._declared.expiration
        if expiration is None:
            return
        for window in origin.windows:
            timer, expires_us = expiration_timer(
                expiration.family, window, self._declared.allowed_lateness_us, origin.pane_info
            )
            self._queue(key, window).set(timer, expires_us=expires_us)

    def load(self, store: StateBackend, key: bytes) -> None:
        """Set the timers that an earlier bundle has stored for a key."""
        declared = self._declared
        if declared.key_coder is None or declared.window_coder is None:
            return
        transform = next(iter(declared.families)).transform
        for stored in store.timers(transform, declared.key_coder.encode_nested(key)):
            window = declared.window_coder.decode(stored.window)
            timer = Timer(
                TimerId(stored.family, stored.tag, window),
                stored.domain,
                stored.fires_us,
                stored.hold_us,
                _PANE_CODER.decode(stored.pane),
            )
            self._queue(key, window).set(timer, expires_us=self._expiry_us(window))

    def store(self, store: StateBackend, keys: Iterable[bytes]) -> None:
        """Store the timers of keys for a later bundle."""
        declared = self._declared
        if declared.key_coder is None or declared.window_coder is None:
            return
        transform = next(iter(declared.families)).transform
        left: dict[bytes, list[StoredTimer]] = {key: [] for key in keys}
        for (key, window), queue in self._queues.items():
            coded_window = declared.window_coder.encode(window)
            left.setdefault(key, []).extend(
                StoredTimer(
                    timer.id.family,
                    timer.id.tag,
                    coded_window,
                    timer.domain,
                    timer.fires_us,
                    timer.hold_us,
                    _PANE_CODER.encode(timer.payload),
                )
                for timer in queue.remaining()
            )
        for key, timers in left.items():
            store.set_timers(transform, declared.key_coder.encode_nested(key), timers)

    def pop(self, to: Instant) -> dict[TimerFamilyId, bytes]:
        """Take the next timer of each key and window: none can change what another one does.

        Args:
            to: how far time may advance.

        Returns:
            Encoded timers, one after the other; nothing when none is due.
        """
        popped: dict[TimerFamilyId, list[bytes]] = {}
        by_name = {id_.family: id_ for id_ in self._declared.families}
        for place in list(self._queues):
            timer = self._queues[place].pop(to)
            if timer is None:
                if not self._queues[place]:
                    del self._queues[place]
                continue
            key, window = place
            family = by_name[timer.id.family]
            codec = self._declared.families[family].codec
            fired = userstate.Timer(
                user_key=key,
                dynamic_timer_tag=timer.id.tag,
                windows=(window,),
                clear_bit=False,
                fire_timestamp=Timestamp(micros=timer.fires_us),
                hold_timestamp=Timestamp(micros=timer.hold_us),
                paneinfo=timer.payload,
            )
            popped.setdefault(family, []).append(codec.write(fired))
        return {family: b"".join(timers) for family, timers in popped.items()}

    def _queue(self, key: bytes, window: Hashable) -> TimerQueue:
        queue = self._queues.get((key, window))
        if queue is None:
            queue = self._queues[key, window] = TimerQueue()
        return queue

    def _expiry_us(self, window: Any) -> int:
        return expiry_us(window.max_timestamp().micros, self._declared.allowed_lateness_us)
