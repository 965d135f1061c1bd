"""The code of what is in flight of a key: user code, between accesses of the runner's own.

It is in generators, which yield what is to be read before they continue.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

from beam_spark_runner.harness.beam.declarative_items import (
    Advance,
    Begun,
    Element,
    Fired,
    Request,
)
from beam_spark_runner.harness.beam.declarative_requests import (
    StateQueue,
    StateRequest,
    executed,
)
from beam_spark_runner.harness.beam.key_states import KeyStates
from beam_spark_runner.harness.beam.keyed import MAX_BYTES, MAX_CALLS
from beam_spark_runner.semantics.interruption import Interruption, uninterrupted
from beam_spark_runner.semantics.timers import Domain, Instant, Timer
from beam_spark_runner.state.backend import Batches

Item: TypeAlias = Element | Begun | Advance
Reads: TypeAlias = Sequence[Any]
"""What is to be read before code continues; none: it waits for its record."""


class KeyInFlight:
    """A key with its states and timers, and what it processes.

    Attributes:
        coded: The key, encoded and nested.
        states: Its states and timers.
        value: The element that is its record; None: it is a timer.
        origin: Has the timestamp, window and pane of its record.
        fired: The timer that is its record; None: it is an element.
        steps: The code of the item that has begun; None: none has.
        is_opening: Whether its states and timers are being read, so that nothing has happened yet.
        calls: Elements and timers since its states were written.
        waits: How many requests of its record are not done.
        queues: Those requests, by the names of their states.
    """

    def __init__(self, coded: bytes, states: KeyStates) -> None:
        self.coded, self.states = coded, states
        self.value: Any = None
        self.origin: Any = None
        self.fired: Fired | None = None
        self.is_opening = False
        self.steps: Iterator[Reads] | None = None
        self.calls = self.waits = 0
        self.queues: dict[str, StateQueue] = {}


class Step(Protocol):
    """Runs the code of a step for one key after another; all of it may fail the bundle."""

    def run_element(self, key: KeyInFlight, element: Element, begun: Begun | None = None) -> None:
        """Begin an element: run its code until it waits for requests, or is done.

        Args:
            key: Its key.
            element: The element.
            begun: What continues it; None: it begins.
        """
        ...

    def run_timer(self, key: KeyInFlight, timer: Timer, begun: Begun | None = None) -> None:
        """Begin a timer, or continue it, likewise."""
        ...

    def snapshot(self) -> Callable[[StateRequest], Request | None]:
        """Return what says what a request is in another process, valid until user code runs.

        None in place of a request: it must be executed in this process.
        """
        ...

    def variables_left(self, record: Any) -> Mapping[str, bytes]:
        """Return the variables of a record that are set, encoded, by name."""
        ...

    def resume(self, key: KeyInFlight, request: StateRequest, result: Any) -> None:
        """Complete the future of a request, and run the callbacks that follow."""
        ...

    def described(self, left: Sequence[Begun]) -> frozenset[str]:
        """Return the descriptions of the callbacks and variables with which records continue."""
        ...

    def charged(self, key: KeyInFlight) -> AbstractContextManager[None]:
        """Return what assigns exceptions of its block to the record of a key."""
        ...

    def forget_arguments(self) -> None:
        """Forget state objects, which are replaced."""
        ...


class KeyCode:
    """Makes the code of items. Threads: the bundle's.

    Args:
        step: Runs user code.
        batches: Executes requests.
        interruption: Decides when due timers are left for later; None: all of them fire.

    Attributes:
        current: The key whose code runs, or has run last; None: no code has run.
        is_leaving: Whether no further timers fire, since what is in flight is left for later.
    """

    def __init__(self, step: Step, batches: Batches, interruption: Interruption | None) -> None:
        self._step, self._batches, self._interruption = step, batches, interruption
        self.current: KeyInFlight | None = None
        self.is_leaving = False

    def of(self, key: KeyInFlight, item: Item) -> Iterator[Reads]:
        """Process an item; yield what is to be read, or nothing to wait for the record."""
        states = key.states
        if not states.has_begun:
            key.is_opening = True
            yield from self._executed(
                lambda: (
                    states.begin(item.value[0])
                    if isinstance(item, Element)
                    else states.begin_encoded(key.coded)
                )
            )
            key.is_opening = False
        elif key.calls > MAX_CALLS or states.piled_bytes > MAX_BYTES:
            yield from self._write(key)
        if isinstance(item, Advance):
            yield from self._fire_due(key, item.to)
            if item.ends:
                yield from self.end(key)
            return
        key.calls += 1
        begun = item if isinstance(item, Begun) else None
        record = item.record if isinstance(item, Begun) else item
        if isinstance(record, Element):
            self._step.run_element(key, record, begun)
        else:
            yield from self._run_fired(key, record, begun)

    def _run_fired(
        self, key: KeyInFlight, fired: Fired, begun: Begun | None = None
    ) -> Iterator[Reads]:
        """Run the code of a timer, and then drop its window if it was the last one there."""
        self.current, key.fired = key, fired
        self._step.run_timer(key, fired.timer, begun)
        if key.waits:
            yield ()
        key.fired = None
        if fired.drops_window:
            yield from self._drop_window(key, fired.timer.id.window)

    def _drop_window(self, key: KeyInFlight, window: Any) -> Iterator[Reads]:
        yield from self._executed(lambda: key.states.drop_window(window))
        self._step.forget_arguments()

    def end(self, key: KeyInFlight) -> Iterator[Reads]:
        """Write the states and timers of a key, which nobody uses from then on."""
        yield from self._write(key)
        yield from self._executed(key.states.store_timers)
        key.states.forget()

    def _fire_due(self, key: KeyInFlight, to: Instant) -> Iterator[Reads]:
        """Fire the timers that are due, as ``KeyedParDo.fire_due`` does; see there."""
        states, interruption = key.states, self._interruption
        timers = states.timers
        while timers and not self.is_leaving:
            if interruption is not None and interruption.stops(timers.would_leave, to):
                to, interruption = uninterrupted(to), None
            if (timer := timers.pop(to)) is None:
                break
            drops_window = timer.domain is Domain.WINDOW_EXPIRATION
            if timer.id.family:
                key.calls += 1
                yield from self._run_fired(key, Fired(timer, drops_window))
                if key.calls > MAX_CALLS or states.piled_bytes > MAX_BYTES:
                    yield from self._write(key)
            elif drops_window:
                yield from self._drop_window(key, timer.id.window)
            if interruption is not None:
                interruption.fired()

    def _write(self, key: KeyInFlight) -> Iterator[Reads]:
        yield from self._executed(*key.states.writes())
        key.states.was_written()
        key.calls = 0
        self._step.forget_arguments()

    def _executed(self, *accesses: Callable[[], Any]) -> Iterator[Reads]:
        return executed(self._batches, accesses)
