"""A TestStream: what happens, event by event, and how far it has been played."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from beam_spark_runner.core.time import MAX_US, MIN_US


class TimedElement(NamedTuple):
    """An element that the driver feeds in."""

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


Event: TypeAlias = Elements | AdvanceWatermark | AdvanceClock


def watermarks_after(events: Sequence[Event], count: int, tags: Sequence[str]) -> Mapping[str, int]:
    """Return the watermark of each output once so many events have happened.

    The watermark of an output comes to the end of time with the event after the last one.

    Args:
        events: all of them.
        count: those that have happened; ``len(events) + 1`` is past the end.
        tags: of all outputs.

    Returns:
        Microseconds of event time, by tag.
    """
    if count > len(events):
        return dict.fromkeys(tags, MAX_US)
    watermarks = dict.fromkeys(tags, MIN_US)
    for event in events[:count]:
        if isinstance(event, AdvanceWatermark):
            watermarks[event.tag] = max(watermarks[event.tag], event.to_us)
    return watermarks
