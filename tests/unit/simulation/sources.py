"""The sources: what they give is a function of the position that was committed."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from beam_spark_runner.core.time import MAX_US
from tests.unit.simulation.elements import COUNTED, GROUPED, SECOND_US, Row

KEYS = ("aed", "bol", "car", "dan", "fed")
"""Of four partitions, each has one of them but the third."""


class Slice(NamedTuple):
    """What one turn has taken of a source, and how it continues."""

    source: int
    position: int
    rows: tuple[Row, ...]
    due_us: int
    hold_us: int


@dataclass(frozen=True)
class Sources:
    """Some sources.

    Attributes:
        count: of them.
        length: elements of each.
        most_late_us: by which elements may be behind the watermark.
        dests: the stages that read their elements.
    """

    count: int
    length: int
    most_late_us: int
    dests: Sequence[int] = (GROUPED, COUNTED)

    def of_partition(self, partition: int, partitions: int) -> Sequence[int]:
        """Return which sources a task begins to read."""
        return range(partition, self.count, partitions)

    def element(self, source: int, position: int) -> tuple[str, int, int]:
        """Return the key, the value and the timestamp of an element."""
        drawn = zlib.crc32(b"%d:%d" % (source, position))
        value = source * self.length + position
        jitter_us = (drawn >> 8) % (6 * SECOND_US + self.most_late_us) - self.most_late_us
        time_us = max(0, _estimate_us(position) + jitter_us) // 1000 * 1000
        return KEYS[drawn % len(KEYS)], value, time_us

    def hold_us(self, source: int, position: int) -> int:
        """Return the watermark of a source at a position."""
        return _estimate_us(position) if position < self.length else MAX_US

    def take(self, source: int, position: int, clock_us: int, attempt: int) -> Slice:
        """Give some elements from a position on; how many, each attempt draws for itself."""
        random = Random(attempt + source)
        until = min(self.length, position + random.randrange(5))
        rows: list[Row] = []
        for each in range(position, until):
            key, value, time_us = self.element(source, each)
            rows += [Row(dest, key, value, time_us) for dest in self.dests]
        due_us = clock_us + random.choice((0, 100_000, SECOND_US, 5 * SECOND_US))
        return Slice(source, until, tuple(rows), due_us, self.hold_us(source, until))

    def is_done(self, taken: Slice) -> bool:
        """Whether nothing is left of a source."""
        return taken.position >= self.length


def _estimate_us(position: int) -> int:
    return position * 2 * SECOND_US
