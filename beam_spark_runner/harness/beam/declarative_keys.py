"""The keys of a declarative step that are processed at the same time.

``semantics.in_flight`` decides what runs, and which requests are executed together.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from apache_beam.coders import WindowedValueCoder
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.harness.beam.declarative_log import Advance, Element, ElementLog
from beam_spark_runner.harness.beam.declarative_requests import (
    CodeRequest,
    StateQueue,
    StateRequest,
    executed,
)
from beam_spark_runner.harness.beam.key_states import KeyStates
from beam_spark_runner.harness.beam.keyed import MAX_BYTES, MAX_CALLS
from beam_spark_runner.harness.failures import ChargedTo
from beam_spark_runner.semantics.in_flight import InFlight
from beam_spark_runner.semantics.interruption import Interruption, uninterrupted
from beam_spark_runner.semantics.timers import Domain, Instant, Timer
from beam_spark_runner.state.backend import Batches
from beam_spark_runner.state.policy import KeyPolicy

_ADVANCE_BYTES = 200

_Reads = Sequence[Any]  # what is to be read before code continues; none: it waits for its record


class KeyInFlight:
    """A key with its states and timers, and what it processes.

    Attributes:
        coded: The key, encoded and nested.
        states: Its states and timers.
        value: The element that is its record; None: it is a timer.
        origin: Has the timestamp, window and pane of its record.
        steps: The code of the item that has begun; None: none has.
        calls: Elements and timers since its states were written.
        waits: How many requests of its record are not done.
        queues: Those requests, by the names of their states.
    """

    def __init__(self, coded: bytes, states: KeyStates) -> None:
        self.coded, self.states = coded, states
        self.value: Any = None
        self.origin: Any = None
        self.steps: Iterator[_Reads] | None = None
        self.calls = self.waits = 0
        self.queues: dict[str, StateQueue] = {}


class Step(Protocol):
    """Runs the code of a step for one key after another; all of it may fail the bundle."""

    def run_element(self, key: KeyInFlight, element: Element) -> None:
        """Begin an element: run its code until it waits for requests, or is done."""
        ...

    def run_timer(self, key: KeyInFlight, timer: Timer) -> None:
        """Begin a timer, likewise."""
        ...

    def resume(self, key: KeyInFlight, request: StateRequest, result: Any) -> None:
        """Complete the future of a request, and run the callbacks that follow."""
        ...

    def charged(self, key: KeyInFlight) -> AbstractContextManager[None]:
        """Return what assigns exceptions of its block to the record of a key."""
        ...

    def forget_arguments(self) -> None:
        """Forget state objects, which are replaced."""
        ...


class KeysInFlight:
    """Processes elements and timers of many keys. Threads: the bundle's.

    Args:
        step: Runs the code.
        name: The name of the step.
        template: The states of a key, to be copied for each.
        coder: The coder of the step's input.
        batches: Executes requests.
        policy: That of the bundle.
        interruption: Decides when due timers are left for later; None: all of them fire.
        now_us: Returns the time of a monotonic clock.
    """

    def __init__(
        self,
        step: Step,
        name: str,
        template: KeyStates,
        coder: WindowedValueCoder,
        batches: Batches,
        policy: KeyPolicy,
        interruption: Interruption | None,
        now_us: Callable[[], int],
    ) -> None:
        self._step, self._name = step, name
        self._template, self._batches = template, batches
        self._interruption, self._now_us = interruption, now_us
        self._flights: InFlight[bytes, Element | Advance, StateRequest | CodeRequest]
        self._flights = InFlight(policy.in_flight, ElementLog(coder))
        self._keys: dict[bytes, KeyInFlight] = {}
        self._current: KeyInFlight | None = None  # whose code runs
        self._unused: list[KeyStates] = []

    def add(self, key: bytes, value: Any, origin: WindowedValue, size: int) -> None:
        """Take an element; outputs may come during this call, also of other keys.

        Args:
            key: The key, encoded and nested.
            value: The element.
            origin: Has its timestamp, its one window, and its pane.
            size: About how many bytes it takes.
        """
        self._take(key, Element(value, origin), size)

    def advance(self, key: bytes, to: Instant, *, ends: bool) -> None:
        """Advance the time of a key after all its elements so far.

        Args:
            key: The key, encoded and nested.
            to: See ``Advance``.
            ends: See ``Advance``.
        """
        self._take(key, Advance(to, ends), _ADVANCE_BYTES)

    @property
    def are_settled(self) -> bool:
        """Whether nothing is in flight."""
        return self._flights.is_empty

    def settle(self) -> None:
        """Finish all that is in flight."""
        self._run()
        while not self._flights.is_empty:
            self._execute_batch()

    def _take(self, key: bytes, item: Element | Advance, size: int) -> None:
        flights = self._flights
        if key not in self._keys:
            states = self._unused.pop() if self._unused else self._template.of_another_key()
            self._keys[key] = KeyInFlight(key, states)
        flights.add(key, item, size)
        self._run()
        while flights.is_full or flights.is_batch_due(self._now_us()):
            self._execute_batch()

    def _run(self) -> None:
        """Run what need not wait."""
        while (begun := self._flights.begin()) is not None:
            coded, item = begun
            key = self._keys[coded]
            if key.steps is None:
                key.steps = self._steps(key, item)
            self._continue(key)

    def _continue(self, key: KeyInFlight) -> None:
        """Run the code of an item until it is done, or waits."""
        assert key.steps is not None
        self._current = key
        with ChargedTo(self._name):  # coders may raise
            reads = next(key.steps, None)
        if reads:  # its reference is then that of the request
            self._flights.wait(CodeRequest(key, reads), self._now_us())
            return
        if reads is None:
            key.steps = None
        self._flights.returned(key.coded, keeps=reads is not None)
        if not self._flights.has(key.coded) and not key.states.has_begun:
            del self._keys[key.coded]
            self._unused.append(key.states)

    def _steps(self, key: KeyInFlight, item: Element | Advance) -> Iterator[_Reads]:
        """Process an item; yield what is to be read, or nothing to wait for the record."""
        states = key.states
        if not states.has_begun:
            yield from self._executed(
                lambda: (
                    states.begin(item.value[0])
                    if isinstance(item, Element)
                    else states.begin_encoded(key.coded)
                )
            )
        elif key.calls > MAX_CALLS or states.piled_bytes > MAX_BYTES:
            yield from self._write(key)
        if isinstance(item, Element):
            key.calls += 1
            self._step.run_element(key, item)
            return
        yield from self._fire_due(key, item.to)
        if item.ends:
            yield from self._write(key)
            yield from self._executed(states.store_timers)
            states.forget()

    def _fire_due(self, key: KeyInFlight, to: Instant) -> Iterator[_Reads]:
        """Fire the timers that are due, as ``KeyedParDo.fire_due`` does; see there."""
        states, interruption = key.states, self._interruption
        timers = states.timers
        while timers:
            if interruption is not None and interruption.stops(timers.would_leave, to):
                to, interruption = uninterrupted(to), None
            if (timer := timers.pop(to)) is None:
                break
            if timer.id.family:
                key.calls += 1
                self._current = key
                self._step.run_timer(key, timer)
                if key.waits:
                    yield ()
                if key.calls > MAX_CALLS or states.piled_bytes > MAX_BYTES:
                    yield from self._write(key)
            if interruption is not None:
                interruption.fired()
            if timer.domain is Domain.WINDOW_EXPIRATION:
                window = timer.id.window
                yield from self._executed(lambda: states.drop_window(window))  # noqa: B023
                self._step.forget_arguments()

    def _write(self, key: KeyInFlight) -> Iterator[_Reads]:
        yield from self._executed(*key.states.writes())
        key.states.was_written()
        key.calls = 0
        self._step.forget_arguments()

    def _executed(self, *accesses: Callable[[], Any]) -> Iterator[_Reads]:
        return executed(self._batches, accesses)

    # -- requests of states ------------------------------------------------------------------------

    def ask(
        self, record: Any, name: str, access: Callable[[], Any], future: Any, read: Any
    ) -> tuple[Any] | None:
        """See ``transforms.declarative.processed.Requests``."""
        key = self._current
        assert key is not None
        request = StateRequest(key, record, name, access, future, read)
        queue = key.queues.get(name)
        if queue is None or queue.may_try(request):
            done = request.is_done(self._batches)
            if done is not None:
                return done
            if queue is None:
                queue = key.queues[name] = StateQueue()
            queue.tried(request)
            self._flights.wait(request, self._now_us())
        else:
            queue.put_behind(request)
        key.waits += 1
        self._flights.refer(key.coded)
        return None

    def _execute_batch(self) -> None:
        """Load what requests wait for in one round trip, and run all that can continue then."""
        batch = self._flights.batch()
        missed = [read for request in batch for read in request.missed]
        if missed:
            self._batches.load(missed)
        for request in batch:
            if isinstance(request, CodeRequest):
                self._continue(request.key)
            else:
                self._try_again(request)
        self._run()

    def _try_again(self, request: StateRequest) -> None:
        done = self._tried(request)
        if done is None:
            self._flights.wait(request, self._now_us())
            return
        key = request.key
        queue = key.queues[request.name]
        queue.done(request)
        self._resume(request, done[0])
        while (following := queue.next()) is not None:
            done = self._tried(following)
            if done is None:
                queue.tried(following)
                self._flights.wait(following, self._now_us())
            else:
                self._resume(following, done[0])

    def _tried(self, request: StateRequest) -> tuple[Any] | None:
        with self._step.charged(request.key):
            return request.is_done(self._batches)

    def _resume(self, request: StateRequest, result: Any) -> None:
        key = request.key
        key.waits -= 1
        self._current = key
        self._step.resume(key, request, result)
        self._flights.returned(key.coded)
