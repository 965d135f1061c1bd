"""Runs a keyed stage on an SDK harness in another process, by a series of bundles.

In the Fn API, an SDK writes changed state and sends timers when its bundle ends. So a task runs
several bundles. The first processes the elements of many keys; then, as long as any of these keys
has a timer that is due, another bundle fires the next timer of each. Finally, the state of these
keys is dropped or stored, and the next keys follow.
"""

import functools
import secrets
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.callbacks import Callbacks
from beam_spark_runner.core.errors import FnApiProtocolError, InvariantError, RunnerError
from beam_spark_runner.core.ids import PCollectionId, TimerFamilyId
from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.harness.bundle import IDLE, Activity, Bundle, BundleResult, Settled
from beam_spark_runner.harness.remote.key_timers import DeclaredTimers, KeyTimers
from beam_spark_runner.portable.bounded import MalformedBytesError
from beam_spark_runner.portable.monitoring import merge
from beam_spark_runner.semantics.interruption import uninterrupted
from beam_spark_runner.semantics.lateness import drop_expired
from beam_spark_runner.semantics.timers import NEVER_US, Instant
from beam_spark_runner.state.backend import StateBackend
from beam_spark_runner.state.policy import BATCH, KeyPolicy
from beam_spark_runner.state.requests import StateRequests

MAX_CALLS = 8192
"""The number of elements (counted per window) and timers after which a bundle ends: until then, the
SDK keeps state in memory, and the runner the timers of these keys."""
_MAX_INFOS = 1_000


class OneBundle(Bundle, Protocol):
    """One bundle of the SDK harness."""

    def fire(self, family: TimerFamilyId, coded_timers: bytes) -> None:
        """Send timers that are due, encoded one after another."""
        ...


class TimersTaker(Protocol):
    """Gets the timers that a bundle has set or cleared."""

    def __call__(self, family: TimerFamilyId, coded_timers: bytes) -> Any: ...


class _Moment(NamedTuple):
    """Elements of a key, and the event time up to which its timers fire before them."""

    until_us: int
    values: list[Any]
    origins: list[WindowedValue]


class UserState:
    """State and timers of the keys that the current bundle processes.

    Attributes:
        requests: Answers the state requests of the SDK.
        cache_token: The token with which the SDK may reuse cached state in the next bundle.
    """

    def __init__(self, requests: StateRequests) -> None:
        self.requests = requests
        self.cache_token = secrets.token_bytes(16)

    def forget_cached(self) -> None:
        """Have the SDK read state again in its next bundle.

        Of a state with several pages, the SDK caches the first page and the continuation token, but
        not the values that were appended since.
        """
        self.cache_token = secrets.token_bytes(16)


class MakeState(Protocol):
    """Makes the user state for the next group of keys."""

    def __call__(self) -> UserState: ...


class StartBundle(Protocol):
    """Begins a bundle on the SDK harness."""

    def __call__(self, state: UserState, take_timers: TimersTaker) -> OneBundle: ...


class RemoteKeyedBundle:
    """A ``Bundle`` of the task, which consists of several bundles of the SDK harness.

    Args:
        start: Begins a bundle of the SDK harness; called at once for the first.
        make_state: Makes the user state for the next keys.
        timers: The timers that the stage has declared.
        sdk: The name of the SDK, for errors.
        policy: What happens to keys after their last element.
        one_key_at_a_time: Whether each bundle of the SDK harness is of one key, of which are all
            state requests that name none.
    """

    def __init__(
        self,
        start: StartBundle,
        make_state: MakeState,
        timers: DeclaredTimers,
        sdk: str,
        policy: KeyPolicy = BATCH,
        *,
        one_key_at_a_time: bool = False,
    ) -> None:
        self._start = start
        self._make_state = make_state
        self._declared_timers = timers
        self._sdk = sdk
        self._policy = policy
        self._one_key_at_a_time = one_key_at_a_time
        # Without a store, state is forgotten anyway.
        self._expects_expiry = timers.expiration is not None or policy.store is not None
        self._infos: list[bytes] = []
        self._callbacks: list[Callbacks] = []
        self._bundle: OneBundle | None = None
        self._sent_timers: list[tuple[TimerFamilyId, bytes]] = []  # by the bundle
        self._begin_keys()
        self._open()

    def _begin_keys(self) -> None:
        self._state = self._make_state()
        self._timers = KeyTimers(self._declared_timers, self._policy.dropped)
        self._holds_us: dict[bytes, int] = {}  # by key, if keys are stored
        self._calls = 0  # elements and timers of these keys
        self._key = b""  # the current key, if keys are stored
        self._until_us: int | None = None  # its timers fire until then before the next push
        self._moments: dict[bytes, deque[_Moment]] = {}  # by key: elements that wait for timers
        self._have_timers: set[bytes] = set()  # keys that may have timers
        self._calls_of_bundle = 0

    def _open(self) -> OneBundle:
        if self._bundle is None:
            self._calls_of_bundle = 0
            self._bundle = self._start(self._state, self._take_timers)
        return self._bundle

    def _take_timers(self, family: TimerFamilyId, coded_timers: bytes) -> None:
        self._sent_timers.append((family, coded_timers))

    def push(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """See ``BundleInput.push``. A large key is processed in several bundles."""
        self._begin(values[0][0])
        if self._policy.store is not None:
            values, origins = self._in_time(values, origins)
            if not values:
                return
        if self._until_us is not None and self._key in self._have_timers:
            self._wait(self._until_us, values, origins)
            return
        self._have_timers.add(self._key)
        self._calls += self._push(values, origins)

    def _wait(self, until_us: int, values: list[Any], origins: list[WindowedValue]) -> None:
        moments = self._moments.setdefault(self._key, deque())
        if moments and moments[-1].until_us == until_us:
            moments[-1].values.extend(values)
            moments[-1].origins.extend(origins)
        else:
            moments.append(_Moment(until_us, [*values], [*origins]))
        self._calls += len(values)
        if self._calls >= MAX_CALLS:
            self._come_to_moments({self._key: until_us})

    def _push(self, values: list[Any], origins: list[WindowedValue]) -> int:
        """Push elements into the bundle; return their number, counted per window."""
        if self._calls_of_bundle >= MAX_CALLS:
            self._close()
        bundle = self._open()
        if self._expects_expiry:
            for value, origin in zip(values, origins, strict=True):
                self._timers.expect_expiry(value[0], origin)
        bundle.push(values, origins)
        calls = sum(len(origin.windows) for origin in origins)
        self._calls_of_bundle += calls
        return calls

    def _begin(self, key: bytes) -> None:
        if self._one_key_at_a_time:
            self._state.requests.key = self._timers.coded_key(key)
        if self._policy.store is not None:
            self._load(self._policy.store, key)

    def _load(self, store: StateBackend, key: bytes) -> None:
        self._key = key
        # A key may be loaded twice before it is stored: then the store's timers are outdated.
        if key not in self._holds_us:
            self._holds_us[key] = MAX_US
            if self._timers.load(store, key):
                self._have_timers.add(key)

    def _in_time(
        self, values: list[Any], origins: list[WindowedValue]
    ) -> tuple[list[Any], list[WindowedValue]]:
        """Drop elements in windows that have expired."""
        is_over, policy = self._timers.is_over, self._policy
        watermark_us = policy.watermark_us
        return drop_expired(
            values, origins, lambda window: is_over(window, watermark_us), policy.late
        )

    def push_from_within(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """See ``Bundle.push_from_within``."""
        self.push(values, origins)

    def advance_key(self) -> None:
        """See ``BundleInput.advance_key``. Its timers fire later, with those of other keys."""
        self.advance_key_until(MAX_US)

    def restore(self, records: Sequence[bytes]) -> None:
        """See ``SettlingInput.restore``. An SDK harness leaves nothing."""
        if records:
            raise InvariantError(f"{len(records)} records were left by another harness")

    def settle(self) -> Settled:
        """See ``SettlingInput.settle``. The SDK harness orders its requests."""
        return Settled()

    def begin_key(self, key: bytes) -> None:
        """See ``StoringInput.begin_key``."""
        self._begin(self._timers.key_of(key))
        self._calls += 1

    def advance_key_until(self, hold_us: int) -> None:
        """See ``StoringInput.advance_key_until``."""
        self._until_us = None
        if self._policy.store is not None:
            self._holds_us[self._key] = hold_us
        interruption = self._policy.interruption
        most = MAX_CALLS if interruption is None else interruption.batch
        if self._one_key_at_a_time or self._calls >= most:
            self._end_keys()

    def fire_until(self, watermark_us: int) -> None:
        """See ``SteppedInput.fire_until``.

        The SDK reports timers only at the end of a bundle. So elements that are pushed next wait
        for that, and are then processed together with waiting elements of other keys.
        """
        self._until_us = watermark_us

    def enter(self) -> None:
        """Do nothing: the SDK harness has the metrics."""

    def flush(self) -> None:
        """Send the elements that were pushed so far."""
        if self._bundle is not None:
            self._bundle.flush()

    def split(
        self, fraction_of_remainder: float
    ) -> Sequence[beam_fn_api_pb2.DelayedBundleApplication]:
        """See ``Bundle.split``. Keys are not split."""
        return ()

    def progress(self) -> Sequence[bytes]:
        """See ``Bundle.progress``."""
        bundle = self._bundle
        return [*self._infos, *(bundle.progress() if bundle is not None else ())]

    def samples(self) -> Mapping[PCollectionId, Sequence[bytes]]:
        """See ``Bundle.samples``."""
        bundle = self._bundle
        return {} if bundle is None else bundle.samples()

    def activity(self) -> Activity:
        """See ``Bundle.activity``."""
        bundle = self._bundle
        if bundle is None:
            return IDLE
        activity = bundle.activity()
        return activity._replace(seen=(id(bundle), activity.seen))

    def status(self) -> str:
        """See ``Bundle.status``."""
        bundle = self._bundle
        return "" if bundle is None else bundle.status()

    def give_up(self, error: RunnerError) -> bool:
        """See ``Bundle.give_up``."""
        bundle = self._bundle
        return bundle is not None and bundle.give_up(error)

    def finish(self) -> BundleResult:
        """See ``Bundle.finish``."""
        self._end_keys()
        return BundleResult(monitoring_infos=tuple(self._infos), callbacks=tuple(self._callbacks))

    def abort(self) -> None:
        """See ``Bundle.abort``."""
        for callbacks in self._callbacks:
            callbacks.drop()
        if self._bundle is not None:
            self._bundle.abort()

    def _end_keys(self) -> None:
        """Advance the time of all current keys, fire due timers, and store or drop the keys."""
        self._come_to_moments({})
        self._close()
        self._fire(self._policy.to, self._holds_us)
        store = self._policy.store
        if store is not None:
            self._timers.store(store, self._holds_us)
        self._begin_keys()

    def _come_to_moments(self, held_us: Mapping[bytes, int]) -> None:
        """Push the waiting elements, in each bundle those of one moment of each key.

        Args:
            held_us: The event time that keys must not pass once none of their elements wait.
        """
        to = Instant(self._policy.to.watermark_us, NEVER_US)
        while self._moments:
            self._close()
            ends_us = {key: moments[0].until_us for key, moments in self._moments.items()}
            self._fire(to, {**self._holds_us, **held_us, **ends_us})
            for key, moments in list(self._moments.items()):
                _, values, origins = moments.popleft()
                self._push(values, origins)
                if not moments:
                    del self._moments[key]

    def _fire(self, to: Instant, holds_us: Mapping[bytes, int]) -> None:
        """Advance the time of all current keys, and fire due timers.

        Args:
            to: The watermark and processing time to advance to.
            holds_us: The event time that a key must not pass, for some keys.
        """
        store, interruption = self._policy.store, self._policy.interruption
        would_leave = functools.partial(self._timers.would_leave, holds_us=holds_us)
        while True:
            if interruption is not None and interruption.stops(would_leave, to):
                to, interruption = uninterrupted(to), None
            due = self._timers.pop(to, holds_us, self._policy.loops)
            if not due:
                break
            if due.timers:
                bundle = self._open()
                for family, coded_timers in due.timers.items():
                    bundle.fire(family, coded_timers)
                self._close()
            if interruption is not None:
                interruption.fired()
            if store is not None:
                self._timers.drop(store, due.expired)

    def _close(self) -> None:
        if self._bundle is None:
            return
        # It remains the open bundle while it finishes: if that fails, it must be aborted.
        result = self._bundle.finish()
        self._infos += result.monitoring_infos
        self._callbacks += result.callbacks
        self._bundle = None
        # The order among timers of several families is unknown; sorting makes it deterministic.
        for family, coded_timers in sorted(self._sent_timers, key=lambda entry: entry[0]):
            try:
                clock_us = self._policy.clock_us
                self._calls += self._timers.apply(family, coded_timers, clock_us)
            except MalformedBytesError as error:
                raise FnApiProtocolError(
                    f"the SDK harness sent bytes that are no timers {family.family!r} of "
                    f"{family.transform}: {error} (SDK {self._sdk})"
                ) from error
        self._sent_timers.clear()
        if len(self._infos) > _MAX_INFOS:
            self._infos = list(merge(self._infos))
