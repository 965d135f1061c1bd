"""Which epoch of a streaming pipeline comes next, and when there is none left."""

from collections.abc import Sequence
from dataclasses import dataclass

from beam_spark_runner.scheduling.playback import AdvanceClock, Elements, Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a pipeline has come, as its last manifest says.

    Attributes:
        epoch: number of the last one; 0: none was committed.
        clock_us: processing time of the last one, microseconds since the Unix epoch.
        events: how many events of the TestStream have happened. The end of the stream counts
            as one more.
    """

    epoch: int = 0
    clock_us: int = 0
    events: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """What the next epoch begins with.

    Attributes:
        number: counted from 1.
        clock_us: processing time.
        events: how many events of the TestStream have happened once it has run.
        elements: what the TestStream gives in this epoch.
        feeds_impulses: whether impulses give their element.
        is_last: the watermarks of all sources are at the end of time.
    """

    number: int
    clock_us: int
    events: int
    elements: Elements | None
    feeds_impulses: bool
    is_last: bool


def next_epoch(progress: Progress, events: Sequence[Event]) -> Epoch | None:
    """Return the next epoch; None: the pipeline is done.

    Each event of the TestStream has an epoch of its own, so that nothing is due any more when the
    next event happens. Processing time begins with the Unix epoch, and stands still but for what
    the TestStream adds to it.

    Args:
        progress: of the last manifest.
        events: of the TestStream.
    """
    if progress.events > len(events):
        return None
    happened = progress.events + 1
    event = events[progress.events] if happened <= len(events) else None
    return Epoch(
        number=progress.epoch + 1,
        clock_us=progress.clock_us + (event.by_us if isinstance(event, AdvanceClock) else 0),
        events=happened,
        elements=event if isinstance(event, Elements) else None,
        feeds_impulses=progress.epoch == 0,
        is_last=happened > len(events),
    )
