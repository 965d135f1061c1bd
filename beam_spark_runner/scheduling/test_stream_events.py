"""The events of TestStreams, and how far they have been played."""

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

    output: str  # the id of the PCollection
    elements: tuple[TimedElement, ...]


@dataclass(frozen=True, slots=True)
class AdvanceWatermark:
    """The watermark of an output advances."""

    output: str  # the id of the PCollection
    to_us: int


@dataclass(frozen=True, slots=True)
class AdvanceClock:
    """Processing time passes."""

    by_us: int


@dataclass(frozen=True, slots=True)
class EndOfStream:
    """One of several streams ends, and the watermarks of its outputs advance to the end of time."""

    outputs: frozenset[str]


@dataclass(frozen=True, slots=True)
class End:
    """All streams have ended, and all watermarks advance to the end of time; the last event."""


Event: TypeAlias = Elements | AdvanceWatermark | AdvanceClock | EndOfStream | End


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """How far the TestStreams of a pipeline have been played.

    Attributes:
        events: The number of events that have happened.
        watermarks_us: The watermarks of outputs, by the ids of their PCollections.
        has_ended: Whether all streams have ended, by ``End`` or by a drain.
    """

    events: int
    watermarks_us: Mapping[str, int]
    has_ended: bool = False

    def after(self, event: Event) -> "Played":
        """Return the state of the streams after the next event."""
        if self.has_ended:
            raise InvariantError("an event after the end of a TestStream")
        watermarks = self.watermarks_us
        if isinstance(event, End):
            watermarks = dict.fromkeys(watermarks, MAX_US)
        elif isinstance(event, EndOfStream):
            watermarks = {**watermarks, **dict.fromkeys(event.outputs, MAX_US)}
        elif isinstance(event, AdvanceWatermark):
            to_us = max(watermarks[event.output], event.to_us)
            watermarks = {**watermarks, event.output: to_us}
        return Played(
            events=self.events + 1,
            watermarks_us=watermarks,
            has_ended=isinstance(event, End),
        )

    def drained(self) -> "Played":
        """Return the state of the streams if they end here, without further events."""
        watermarks = dict.fromkeys(self.watermarks_us, MAX_US)
        return Played(events=self.events, watermarks_us=watermarks, has_ended=True)


def not_played(outputs: Iterable[str]) -> Played:
    """Return the state of streams before their first event.

    Args:
        outputs: The ids of the PCollections that they make.
    """
    return Played(events=0, watermarks_us=dict.fromkeys(outputs, MIN_US))
