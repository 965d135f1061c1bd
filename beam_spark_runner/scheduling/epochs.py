"""Decides which epoch of a streaming pipeline is next, when it begins, and which is the last."""

from dataclasses import dataclass

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.scheduling.test_stream_events import AdvanceClock, Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a pipeline, according to its last manifest.

    Attributes:
        epoch: The number of the last committed epoch; 0: none was committed.
        clock_us: The processing time of that epoch, microseconds since the Unix epoch.
        events: The number of events of the TestStream that have happened, including its end.
        next_clock_us: The processing time at which something is due next; None: nothing is due.
        is_due: Whether something is due at once.
        is_final: Whether the pipeline is done.
        drains: Whether it is being drained, since that epoch or an earlier one.
    """

    epoch: int = 0
    clock_us: int = 0
    events: int = 0
    next_clock_us: int | None = None
    is_due: bool = False
    is_final: bool = False
    drains: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """The inputs of the next epoch.

    Attributes:
        number: The number of the epoch, counted from 1.
        clock_us: The processing time of the epoch.
        events: The number of events of the TestStream that have happened after this epoch.
        event: The event of the TestStream that happens in this epoch; None: none does.
        feeds_impulses: Whether impulses emit their element.
        drains: Whether restrictions of splittable DoFns are truncated before they are processed.
    """

    number: int
    clock_us: int
    events: int = 0
    event: Event | None = None
    feeds_impulses: bool
    drains: bool = False


@dataclass(frozen=True, slots=True)
class AwaitEvent:
    """Nothing is due before the TestStream's next event, which has not arrived yet."""


def next_played_epoch(
    progress: Progress, next_event: Event | None, *, has_ended: bool, drains: bool = False
) -> Epoch | AwaitEvent | None:
    """Return the next epoch of a pipeline with a TestStream; None: the pipeline is done.

    Each event has its own epoch. Before the next one happens, further epochs run as long as
    something is due. Processing time begins at the Unix epoch, and advances only by events of the
    TestStream; after its end, it jumps to the time at which something is due next. The first
    epoch waits for no event, since impulses are due in it.

    Args:
        progress: The progress according to the last manifest.
        next_event: The next event of the TestStream; None: it has not arrived, or there is none.
        has_ended: Whether the end of the TestStream has happened.
        drains: Whether the pipeline is to be drained, for which the TestStream has ended. The
            first epoch of the drain is due at once.
    """
    if progress.is_final:
        return None
    due_us = progress.clock_us if progress.is_due else progress.next_clock_us
    clock_us, happened = progress.clock_us, progress.events
    event: Event | None = None
    drains_now = drains and not progress.drains
    if drains_now or (progress.epoch and due_us is not None and due_us <= clock_us):
        pass
    elif has_ended:
        clock_us = _due(due_us)
    elif next_event is not None:
        event = next_event
        happened += 1
        clock_us += event.by_us if isinstance(event, AdvanceClock) else 0
    elif progress.epoch:
        return AwaitEvent()
    return Epoch(
        number=progress.epoch + 1,
        clock_us=clock_us,
        events=happened,
        event=event,
        feeds_impulses=progress.epoch == 0,
        drains=drains or progress.drains,
    )


def next_timed_epoch(progress: Progress, now_us: int, *, drains: bool = False) -> Epoch | None:
    """Return the next epoch of a pipeline whose processing time is the wall clock.

    Args:
        progress: The progress according to the last manifest.
        now_us: The driver's clock. Processing time never goes back, even if this clock does.
        drains: Whether the pipeline is to be drained. The first epoch of the drain is due at once.

    Returns:
        An epoch, which is to begin at its ``clock_us``: now, or when something is due. None: the
        pipeline is done.
    """
    if progress.is_final:
        return None
    clock_us = max(now_us, progress.clock_us)
    if progress.epoch and not progress.is_due and (progress.drains or not drains):
        clock_us = max(clock_us, _due(progress.next_clock_us))
    return Epoch(
        number=progress.epoch + 1,
        clock_us=clock_us,
        feeds_impulses=progress.epoch == 0,
        drains=drains or progress.drains,
    )


_SLOWNESS = 10
"""How much slower than time processing time runs while the driver's clock lags it."""


def wait_us(progress: Progress, epoch: Epoch, now_us: int, rest_us: int, *, passed_us: int) -> int:
    """Return how long a driver waits before it runs an epoch.

    Args:
        progress: The progress according to the last manifest.
        epoch: The next epoch.
        now_us: The driver's clock. If it was set back, processing time runs at a tenth of its speed
            until the clock has caught up: what is due by the last epoch's clock does not wait, a
            source that is idle is asked again soon, and only long delays wait for the clock.
        rest_us: The remainder of the least time between the beginnings of two epochs.
        passed_us: How long ago the last epoch has begun, or the driver if that was later, by a
            monotonic clock.
    """
    begins_drain = epoch.drains and not progress.drains
    if progress.is_due or begins_drain:
        return 0
    slowly_us = _SLOWNESS * (epoch.clock_us - progress.clock_us) - passed_us
    return max(0, min(epoch.clock_us - now_us, slowly_us), rest_us)


def _due(next_clock_us: int | None) -> int:
    if next_clock_us is None:
        raise InvariantError("the pipeline is not done, and nothing is due")
    return next_clock_us
