"""The events of a TestStream, and how far it has been played."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.core.time import MAX_US, MIN_US


class TimedElement(NamedTuple):
    """An element that the driver sends to the first level."""

    coded: bytes  # encoded by the coder of its PCollection, not nested
    timestamp_us: int


@dataclass(frozen=True, slots=True)
class Elements:
    """Elements arrive, in one bundle."""

    tag: str
    elements: tuple[TimedElement, ...]


@dataclass(frozen=True, slots=True)
class AdvanceWatermark:
    """The watermark of an output advances."""

    tag: str
    to_us: int


@dataclass(frozen=True, slots=True)
class AdvanceClock:
    """Processing time passes."""

    by_us: int


@dataclass(frozen=True, slots=True)
class End:
    """The stream ends, and all watermarks advance to the end of time; always the last event."""


Event: TypeAlias = Elements | AdvanceWatermark | AdvanceClock | End


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """How far a TestStream has been played.

    Attributes:
        events: The number of events that have happened.
        watermarks_us: The watermarks of outputs, by tag.
        has_ended: Whether the stream has ended, by ``End`` or by a drain.
    """

    events: int
    watermarks_us: Mapping[str, int]
    has_ended: bool = False

    def after(self, event: Event) -> "Played":
        """Return the state of the stream after its next event."""
        if self.has_ended:
            raise InvariantError("an event after the end of a TestStream")
        watermarks = self.watermarks_us
        if isinstance(event, End):
            watermarks = dict.fromkeys(watermarks, MAX_US)
        elif isinstance(event, AdvanceWatermark):
            watermarks = {**watermarks, event.tag: max(watermarks[event.tag], event.to_us)}
        return Played(
            events=self.events + 1,
            watermarks_us=watermarks,
            has_ended=isinstance(event, End),
        )

    def drained(self) -> "Played":
        """Return the state of the stream if it ends here, without further events."""
        watermarks = dict.fromkeys(self.watermarks_us, MAX_US)
        return Played(events=self.events, watermarks_us=watermarks, has_ended=True)


def not_played(tags: Iterable[str]) -> Played:
    """Return the state of a stream before its first event.

    Args:
        tags: The tags of all outputs.
    """
    return Played(events=0, watermarks_us=dict.fromkeys(tags, MIN_US))
