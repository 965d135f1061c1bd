"""Plays TestStreams: which events have happened, and which is next."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from beam_spark_runner.recovery.manifest import IncompatibleCheckpointError
from beam_spark_runner.scheduling.epochs import AwaitEvent, Epoch, Progress, next_played_epoch
from beam_spark_runner.scheduling.test_stream_events import (
    End,
    EndOfStream,
    Event,
    Played,
    not_played,
)

_LONGEST_WAIT_S = 60.0


class Events(Protocol):
    """The events of TestStreams from the first one on, as they arrive."""

    def take(self, timeout_s: float) -> Event | None:
        """Return the next event, each once; nothing comes after its ``End``.

        None: none has arrived in time, or the job is to end.

        Raises:
            RunnerError: no more events can be had.
        """
        ...

    def stop(self) -> None:
        """End the wait for an event: a thread that waits in ``take`` gets None."""
        ...


class KnownEvents:
    """``Events`` that are all known from the beginning."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = iter(events)

    def take(self, timeout_s: float) -> Event | None:
        """See ``Events.take``."""
        return next(self._events, None)

    def stop(self) -> None:
        """See ``Events.stop``."""


class EventsInTurn:
    """The events of several TestStreams: one event of each in turn, until all have ended.

    The model leaves it open how they are interleaved. The order must be the same whenever the
    pipeline is run, so that it can continue from its checkpoint: a stream that a service sends is
    waited for.

    Args:
        streams: the events of each stream, and the ids of the PCollections that it makes.

    Source: Java ``QuiescenceDriver.addWorkIfNecessary`` of the DirectRunner, which adds a bundle of
        each root once nothing else is left to do; one of a TestStream is one event.
    """

    def __init__(self, streams: Iterable[tuple[Events, Iterable[str]]]) -> None:
        self._streams = tuple((events, frozenset(outputs)) for events, outputs in streams)
        self._turns = deque(self._streams)

    def take(self, timeout_s: float) -> Event | None:
        """See ``Events.take``."""
        if not self._turns:
            return None
        events, outputs = self._turns[0]
        event = events.take(timeout_s)
        if event is None:
            return None
        self._turns.popleft()
        if not isinstance(event, End):
            self._turns.append((events, outputs))
            return event
        return EndOfStream(outputs) if self._turns else event

    def stop(self) -> None:
        """See ``Events.stop``."""
        for events, _ in self._streams:
            events.stop()


class Playback:
    """How far TestStreams have been played. Of their events only the next one is kept.

    Attributes:
        played: the state of the streams after all events that have happened.
    """

    def __init__(
        self, events: Events, outputs: Iterable[str], step: str, check_cancelled: Callable[[], None]
    ) -> None:
        """Open at the beginning.

        Args:
            events: the events of the streams.
            outputs: the ids of the PCollections that they make.
            step: the names of the steps, for messages.
            check_cancelled: raises if the job is to end.
        """
        self.played: Played = not_played(outputs)
        self._events = events
        self._step = step
        self._check_cancelled = check_cancelled
        self._next: Event | None = None

    def next_epoch(
        self, progress: Progress, drains: Callable[[], bool] = lambda: False
    ) -> Epoch | None:
        """Return the next epoch, once its event has arrived; None: the pipeline is done.

        Args:
            progress: the progress in the last manifest.
            drains: returns whether the streams are to end without further events; called again
                and again.

        Raises:
            IncompatibleCheckpointError: more events have happened than there are.
        """
        if not (progress.is_final or progress.drains or drains()):
            self._advance_to(progress.events, drains)
        wait_s = 0.0
        while True:
            is_drained = drains() or progress.drains
            if is_drained:
                self.played = self.played.drained()
            elif not (progress.is_final or self.played.has_ended):
                self._look(wait_s)
            epoch = next_played_epoch(
                progress,
                None if is_drained else self._next,
                has_ended=self.played.has_ended,
                drains=is_drained,
            )
            if not isinstance(epoch, AwaitEvent):
                return epoch
            wait_s = _LONGEST_WAIT_S

    def after(self, epoch: Epoch) -> Played:
        """Return the state of the streams once an epoch has run."""
        return self.played if epoch.event is None else self.played.after(epoch.event)

    def _advance_to(self, events: int, drains: Callable[[], bool]) -> None:
        """Play as many events as a manifest says have happened: after a restart, more than one."""
        while self.played.events < events and not drains():
            if self.played.has_ended:
                number = self.played.events
                raise IncompatibleCheckpointError(
                    (
                        f"{self._step}: the checkpoint has {events} events of the TestStream, "
                        f"which now has only {number}",
                    ),
                    "the pipeline cannot continue from its checkpoint. Use another "
                    "--checkpoint_dir, or the TestStream with which it began",
                )
            self._look(_LONGEST_WAIT_S)
            if self._next is not None:
                self.played = self.played.after(self._next)
                self._next = None

    def _look(self, wait_s: float) -> None:
        """Set ``_next`` if the next event has arrived, or arrives in time."""
        if self._next is None:
            self._next = self._events.take(wait_s)
            self._check_cancelled()
