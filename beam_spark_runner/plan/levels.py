"""The levels of a plan, counted over all of its segments."""

from collections.abc import Sequence
from typing import NamedTuple

from beam_spark_runner.plan.model import Level, Plan, Segment


class LevelRange(NamedTuple):
    """Consecutive levels of one segment.

    Attributes:
        segment: The segment.
        levels: The numbers of the levels within the segment.
    """

    segment: Segment
    levels: range

    @property
    def first(self) -> int:
        """The number of the first level, counted over all levels of the plan."""
        return self.segment.first_level + self.levels[0]

    @property
    def last(self) -> int:
        """The number of the last level, counted over all levels of the plan."""
        return self.segment.first_level + self.levels[-1]


def levels(plan: Plan) -> Sequence[Level]:
    """Return all levels; the index of a level is its number in the plan."""
    return [level for segment in plan.segments for level in segment.levels]


def parts(plan: Plan, numbers: range) -> Sequence[LevelRange]:
    """Split a range of levels by segments.

    Args:
        plan: The plan.
        numbers: The numbers of the levels, counted over all levels of the plan.

    Example:
        Segments of 13 and 12 levels, range(3, 15)   ==>   0: range(3, 13);  1: range(0, 2)
    """
    ranges = []
    for segment in plan.segments:
        first = max(numbers.start - segment.first_level, 0)
        end = min(numbers.stop - segment.first_level, len(segment.levels))
        if first < end:
            ranges.append(LevelRange(segment, range(first, end)))
    return ranges
