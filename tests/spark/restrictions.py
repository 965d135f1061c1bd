"""Restrictions that tests of splittable DoFns count through."""

import apache_beam as beam
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.transforms.core import RestrictionProvider


class Counting(RestrictionProvider):  # type: ignore[misc]
    """An element is a name and how far to count."""

    def initial_restriction(self, element: tuple[str, int]) -> OffsetRange:
        return OffsetRange(0, element[1])

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, element: tuple[str, int], restriction: OffsetRange) -> int:
        return int(restriction.size())


RESTRICTION = beam.DoFn.RestrictionParam(Counting())
