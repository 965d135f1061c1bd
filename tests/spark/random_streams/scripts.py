"""What happens to a random pipeline that streams: the events of its TestStream."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from apache_beam.coders import VarIntCoder
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.window import TimestampedValue

KEYS = "abc"
MAIN, SIDE = "main", "side"


class Timed(NamedTuple):
    """An element of the TestStream."""

    key: str
    number: int
    at: int  # seconds of event time


@dataclass(frozen=True)
class Add:
    """Elements arrive, in one bundle."""

    tag: str
    elements: tuple[Timed, ...]


@dataclass(frozen=True)
class Watermark:
    """The watermark of an output advances, in seconds."""

    tag: str
    to: int


@dataclass(frozen=True)
class Clock:
    """Processing time passes, in seconds."""

    by: int


Event = Add | Watermark | Clock
Script = tuple[Event, ...]


def is_one_by_one(script: Script) -> bool:
    """Whether no two elements arrive together, so that bundles cannot be cut in two ways."""
    return all(len(event.elements) == 1 for event in script if isinstance(event, Add))


def has_late(script: Script) -> bool:
    """Whether an element arrives behind the watermark."""
    watermarks = {MAIN: 0, SIDE: 0}
    for event in script:
        if isinstance(event, Watermark):
            watermarks[event.tag] = event.to
        elif isinstance(event, Add) and any(
            element.at < watermarks[event.tag] for element in event.elements
        ):
            return True
    return False


def draw_script(
    chance: random.Random, events: int, *, one_by_one: bool, may_be_late: bool
) -> Script:
    """Draw events: elements in and out of order, and both kinds of time advancing.

    Numbers are all different, so that each element can be told from the others.

    Args:
        chance: to draw with.
        events: how many.
        one_by_one: no two elements arrive together.
        may_be_late: some elements arrive behind the watermark.
    """
    earliest = -8 if may_be_late else 0
    script: list[Event] = []
    watermarks = {MAIN: 0, SIDE: 0}
    number = 0
    for place in range(events):
        kind = "add" if place == 0 else chance.choices(("add", "watermark", "clock"), (5, 3, 1))[0]
        tag = SIDE if chance.random() < 0.3 else MAIN
        if kind == "add":
            elements = []
            for _ in range(1 if one_by_one else chance.choice([1, 2, 3, 5])):
                number += 1
                at = max(0, watermarks[tag] + chance.randint(earliest, 16))
                elements.append(Timed(chance.choice(KEYS), number, at))
            script.append(Add(tag, tuple(elements)))
        elif kind == "watermark":
            watermarks[tag] += chance.randint(1, 14)
            script.append(Watermark(tag, watermarks[tag]))
        else:
            script.append(Clock(chance.randint(1, 20)))
    return tuple(script)


def without_side(script: Script) -> Script:
    """Return what a pipeline sees of a script that reads the main output alone."""
    return tuple(event for event in script if isinstance(event, Clock) or event.tag == MAIN)


def stream_of(script: Script, tags: Sequence[str]) -> Stream:
    """Return the TestStream that plays a script to outputs of some tags, and ends.

    Its elements are integers, see ``pair_of``: Prism forgets to which output an element belongs
    if it has to change its encoding.
    """
    stream = Stream(coder=VarIntCoder(), output_tags=tags)
    for event in script:
        match event:
            case Add(tag, elements):
                timed = [TimestampedValue(_code_of(each), each.at) for each in elements]
                stream.add_elements(timed, tag=tag)
            case Watermark(tag, to):
                stream.advance_watermark_to(to, tag=tag)
            case Clock(by):
                stream.advance_processing_time(by)
    for tag in tags:
        stream.advance_watermark_to_infinity(tag)
    return stream


def _code_of(element: Timed) -> int:
    return element.number * len(KEYS) + KEYS.index(element.key)


def pair_of(code: int) -> tuple[str, tuple[int, ...]]:
    """Return the key and the number of an element of ``stream_of``."""
    number, place = divmod(code, len(KEYS))
    return KEYS[place], (number,)
