"""A TestStream: its events, and how many of them have been played."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.core.time import MAX_US, MIN_US


class TimedElement(NamedTuple):
    """An element that the driver sends to the first level."""

    coded: bytes  # by the coder of its collection, not nested
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
    """The stream ends, and event time of all outputs; the last event of every stream."""


Event: TypeAlias = Elements | AdvanceWatermark | AdvanceClock | End


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """How far a TestStream has been played.

    Attributes:
        events: how many have happened.
        watermarks_us: event time, by the tag of an output.
        has_ended: its ``End`` has happened.
    """

    events: int
    watermarks_us: Mapping[str, int]
    has_ended: bool = False

    def after(self, event: Event) -> "Played":
        """Return how far it has been played once the next event has happened."""
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
        """Return how far it has been played if it ends here, with no further event."""
        watermarks = dict.fromkeys(self.watermarks_us, MAX_US)
        return Played(events=self.events, watermarks_us=watermarks, has_ended=True)


def not_played(tags: Iterable[str]) -> Played:
    """Return the state of a stream of which nothing has happened.

    Args:
        tags: of all outputs.
    """
    return Played(events=0, watermarks_us=dict.fromkeys(tags, MIN_US))
