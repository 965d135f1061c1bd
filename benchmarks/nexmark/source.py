"""An unbounded source of the events of a workload: a splittable DoFn, which ends nevertheless."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import MAX_TIMESTAMP, Timestamp

from benchmarks.nexmark.events import Workload

_MARKED_EVERY = 50  # events; setting a watermark takes longer than making an event


class _Positions(RestrictionProvider):  # type: ignore[misc]
    """The restriction provider of elements (number of a shard, number of its events)."""

    def initial_restriction(self, shard: tuple[int, int]) -> OffsetRange:
        return OffsetRange(0, shard[1])

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, shard: tuple[int, int], restriction: OffsetRange) -> int:
        return int(restriction.size())


_RESTRICTION = beam.DoFn.RestrictionParam(_Positions())
_ESTIMATOR = beam.DoFn.WatermarkEstimatorParam(ManualWatermarkEstimator.default_provider())


class _Gives(beam.DoFn):  # type: ignore[misc]
    def __init__(self, source: "Source") -> None:
        self._source = source

    @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator]
    def process(
        self, shard: tuple[int, int], tracker: Any = _RESTRICTION, estimator: Any = _ESTIMATOR
    ) -> Iterator[TimestampedValue]:
        workload, shards = self._source.workload, self._source.shards
        pause_every = self._source.pause_every
        first = position = tracker.current_restriction().start
        while tracker.try_claim(position):
            number, watermark_ms = workload.arrival(position * shards + shard[0])
            if position % _MARKED_EVERY == 0:
                estimator.set_watermark(Timestamp(micros=watermark_ms * 1000))
            event = workload.event(number)
            yield TimestampedValue(event, event.date_time)
            position += 1
            if pause_every and position - first >= pause_every:
                tracker.defer_remainder()
                return
        if position >= shard[1]:
            estimator.set_watermark(MAX_TIMESTAMP)


@dataclass(frozen=True, kw_only=True)
class Source:
    """A source of all events of a workload, with their times as timestamps.

    Attributes:
        workload: The workload.
        shards: The number of restrictions that share the events: of four, each has every fourth.
        pause_every: The number of events after which a shard defers its residual, so that the
            watermark also advances on runners that do not split restrictions by time. 0: never.
    """

    workload: Workload
    shards: int = 4
    pause_every: int = 0

    def read(self, pipeline: beam.Pipeline) -> beam.PCollection:
        """Add the source to a pipeline."""
        count, shards = self.workload.count, self.shards
        sizes = [(shard, len(range(shard, count, shards))) for shard in range(shards)]
        # After a reshuffle, each shard may run elsewhere.
        return pipeline | beam.Create(sizes) | beam.Reshuffle() | beam.ParDo(_Gives(self))
