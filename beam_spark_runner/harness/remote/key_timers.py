"""The timers that an SDK harness has set for the keys of a bundle.

A harness sends timers when its bundle ends, and gets those that fire as the input of a later
bundle. Pairs of key and window are independent: each has its own queue, so that one bundle
fires a timer of every pair.
"""

import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apache_beam.coders import Coder, WindowedValueCoder
from apache_beam.coders.coder_impl import PaneInfoCoderImpl
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2
from apache_beam.transforms import userstate
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.ids import TimerFamilyId, TransformId
from beam_spark_runner.core.time import MAX_US, MIN_US, whole_milliseconds
from beam_spark_runner.harness.beam.timer_coder import timer_coder
from beam_spark_runner.harness.codec.blocks import TimerCodec
from beam_spark_runner.portable.wire import timer_coders_seen_by_the_runner, window_namer
from beam_spark_runner.semantics.timer_loops import TimerLoops
from beam_spark_runner.semantics.timers import (
    Domain,
    DroppedTimers,
    Instant,
    Timer,
    TimerId,
    TimerQueue,
    due_by,
    expiration_timer,
    expiry_us,
    held,
)
from beam_spark_runner.state.backend import StateBackend, StoredTimer

_PANE_CODER = PaneInfoCoderImpl()
_NO_HOLD = Timestamp(micros=MAX_US + 1_000)
"""Java's output timestamp of a timer without one (``withNoOutputTimestamp``)."""
_NO_HOLD_US = MAX_US + 1
"""Stands for ``_NO_HOLD``, which has more than 63 bits, in queues and in the store."""
_NO_HOLDS: Mapping[bytes, int] = {}
_TIME_DOMAIN = beam_runner_api_pb2.TimeDomain
_DOMAINS = {
    _TIME_DOMAIN.EVENT_TIME: Domain.EVENT_TIME,
    _TIME_DOMAIN.PROCESSING_TIME: Domain.PROCESSING_TIME,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFamily:
    """The declaration of a timer family in a DoFn."""

    domain: Domain
    codec: TimerCodec


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredTimers:
    """The timers that a stage declares.

    Attributes:
        families: All timer families.
        expiration: The family of ``on_window_expiration``; None: there is none.
        allowed_lateness_us: The time from the end of a window until it expires.
        transform: The keyed step; None: there is none.
        key_coder: The coder of the keys of all timers, as the runner sees them.
        window_coder: The coder of their windows.
    """

    families: Mapping[TimerFamilyId, TimerFamily]
    expiration: TimerFamilyId | None
    allowed_lateness_us: int
    key_coder: Coder
    window_coder: Coder
    transform: TransformId | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """The next timers that are due, at most one of each key and window.

    Attributes:
        timers: Encoded timers to fire, by family, one after the other.
        expired: Keys and windows that have expired once the timers have fired.
    """

    timers: Mapping[TimerFamilyId, bytes]
    expired: Sequence[tuple[bytes, Any]]

    def __bool__(self) -> bool:
        return bool(self.timers or self.expired)


def declared_timers(
    descriptor: beam_fn_api_pb2.ProcessBundleDescriptor, input_coder: WindowedValueCoder
) -> DeclaredTimers:
    """Read the declared timers of a stage, which has at most one keyed step.

    Args:
        descriptor: The descriptor of the stage.
        input_coder: The coder of its input, as the runner sees it.
    """
    families: dict[TimerFamilyId, TimerFamily] = {}
    expiration, lateness_ms = None, 0
    keyed: TransformId | None = None
    element_coder = input_coder.wrapped_value_coder
    is_kv = element_coder.is_kv_coder()
    key: Coder = element_coder.key_coder() if is_kv else element_coder
    window: Coder = input_coder.window_coder
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
        if payload.timer_family_specs or payload.state_specs:
            keyed = TransformId(id_)
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
        transform=keyed,
    )


class KeyTimers:
    """The timers that are set, by key and window. Threads: the bundle's.

    Args:
        declared: The timers that the stage declares.
        dropped: See ``TimerQueue``.
    """

    def __init__(self, declarations: DeclaredTimers, dropped: DroppedTimers | None = None) -> None:
        self._declarations = declarations
        self._dropped = dropped
        self._name_window = window_namer(declarations.window_coder)
        self._queues: dict[tuple[bytes, Hashable], TimerQueue] = {}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def apply(self, family: TimerFamilyId, coded_timers: bytes, clock_us: int | None = None) -> int:
        """Set and clear timers that an SDK harness has sent, in their order.

        Args:
            family: The family of the timers.
            coded_timers: The encoded timers, one after the other.
            clock_us: The processing time; None: the wall clock's.

        Returns:
            The number of timers.

        Raises:
            MalformedBytesError: The bytes are no timers.
        """
        count = 0
        declaration = self._declarations.families[family]
        for timer in declaration.codec.read(coded_timers):
            count += 1
            for window in timer.windows:
                id_ = TimerId(family.family, timer.dynamic_timer_tag, window)
                queue = self._queue(timer.user_key, window)
                if timer.clear_bit:
                    queue.clear(id_)
                    continue
                fires_us = whole_milliseconds(timer.fire_timestamp.micros)
                if clock_us is not None and declaration.domain is Domain.PROCESSING_TIME:
                    fires_us = due_by(clock_us, fires_us, time.time_ns() // 1000)
                queue.set(
                    Timer(
                        id_,
                        declaration.domain,
                        fires_us,
                        min(max(timer.hold_timestamp.micros, MIN_US), _NO_HOLD_US),
                        timer.paneinfo,
                    ),
                    expires_us=self._expiry_us(window),
                )
        return count

    def is_over(self, window: Any, watermark_us: int) -> bool:
        """Whether a window has expired when the input watermark is ``watermark_us``."""
        return self._expiry_us(window) <= watermark_us

    def expect_expiry(self, key: bytes, origin: WindowedValue) -> None:
        """Set the timers for the expiry of the windows of an element.

        They call the step's ``on_window_expiration``, if it has one, and then the state of the key
        and window is dropped.
        """
        expiration = self._declarations.expiration
        family = "" if expiration is None else expiration.family
        for window in origin.windows:
            timer, expires_us = expiration_timer(
                family, window, self._declarations.allowed_lateness_us, origin.pane_info
            )
            self._queue(key, window).set(timer, expires_us=expires_us)

    def load(self, store: StateBackend, key: bytes) -> int:
        """Set the timers that an earlier bundle has stored for a key; return their number."""
        declarations = self._declarations
        assert declarations.transform is not None
        timers = store.timers(declarations.transform, self.coded_key(key))
        for record in timers:
            window = declarations.window_coder.decode(record.window)
            timer = Timer(
                TimerId(record.family, record.tag, window),
                record.domain,
                record.fires_us,
                record.hold_us,
                _PANE_CODER.decode(record.pane),
            )
            self._queue(key, window).set(timer, expires_us=self._expiry_us(window))
        return len(timers)

    def store(self, store: StateBackend, keys: Iterable[bytes]) -> None:
        """Store the remaining timers of keys for a later bundle."""
        declarations = self._declarations
        assert declarations.transform is not None
        timers_by_key: dict[bytes, list[StoredTimer]] = {key: [] for key in keys}
        for (key, window), queue in self._queues.items():
            coded_window = declarations.window_coder.encode(window)
            timers_by_key.setdefault(key, []).extend(
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
        for key, timers in timers_by_key.items():
            store.set_timers(declarations.transform, self.coded_key(key), timers)

    def key_of(self, coded_key: bytes) -> bytes:
        """Return a key as the runner sees it, from its nested encoding."""
        key: bytes = self._declarations.key_coder.decode_nested(coded_key)
        return key

    def coded_key(self, key: bytes) -> bytes:
        """Return the nested encoding of a key, of which ``key_of`` is the inverse."""
        coded: bytes = self._declarations.key_coder.get_impl().encode_nested(key)
        return coded

    def drop(self, store: StateBackend, expired: Iterable[tuple[bytes, Any]]) -> None:
        """Drop the state of keys and windows that have expired."""
        declarations = self._declarations
        assert declarations.transform is not None
        for key, window in expired:
            name = self._name_window(window)
            store.drop_window(declarations.transform, name, self.coded_key(key))

    def would_leave(self, to: Instant, holds_us: Mapping[bytes, int] = _NO_HOLDS) -> bool:
        """Whether an interrupted advance leaves due timers; see ``TimerQueue.would_leave``."""
        return any(
            queue.would_leave(_until(to, holds_us, key)) for (key, _), queue in self._queues.items()
        )

    def pop(
        self,
        to: Instant,
        holds_us: Mapping[bytes, int] = _NO_HOLDS,
        loops: TimerLoops | None = None,
    ) -> Due:
        """Remove the next due timer of each key and window; such pairs are independent.

        Args:
            to: The watermark and processing time to advance to.
            holds_us: The event time that a key must not pass, for some keys.
            loops: See ``KeyPolicy``.

        Returns:
            The timers; a false value if none is due.
        """
        expired: list[tuple[bytes, Any]] = []
        popped: dict[TimerFamilyId, list[bytes]] = {}
        by_name = {id_.family: id_ for id_ in self._declarations.families}
        for place in list(self._queues):
            key, window = place
            queue = self._queues[place]
            timer = queue.pop(_until(to, holds_us, key))
            if timer is None:
                if not queue:
                    del self._queues[place]
                continue
            if loops is not None and queue.set_again:
                loops.fired(timer.id.family, queue.set_again)
            if timer.domain is Domain.WINDOW_EXPIRATION:
                expired.append(place)
            if not timer.id.family:
                continue
            family = by_name[timer.id.family]
            codec = self._declarations.families[family].codec
            fired = userstate.Timer(
                user_key=key,
                dynamic_timer_tag=timer.id.tag,
                windows=(window,),
                clear_bit=False,
                fire_timestamp=Timestamp(micros=timer.fires_us),
                hold_timestamp=_hold_of(timer),
                paneinfo=timer.payload,
            )
            popped.setdefault(family, []).append(codec.write(fired))
        return Due({family: b"".join(timers) for family, timers in popped.items()}, expired)

    def _queue(self, key: bytes, window: Hashable) -> TimerQueue:
        queue = self._queues.get((key, window))
        if queue is None:
            queue = self._queues[key, window] = TimerQueue(self._dropped)
        return queue

    def _expiry_us(self, window: Any) -> int:
        return expiry_us(window.max_timestamp().micros, self._declarations.allowed_lateness_us)


def _until(to: Instant, holds_us: Mapping[bytes, int], key: bytes) -> Instant:
    return held(to, holds_us.get(key, MAX_US))


def _hold_of(timer: Timer) -> Timestamp:
    return _NO_HOLD if timer.hold_us == _NO_HOLD_US else Timestamp(micros=timer.hold_us)
