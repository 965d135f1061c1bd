"""Discovers partitions: once, or for as long as the pipeline runs."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.coders import Coder
from apache_beam.io.iobase import RestrictionProgress, RestrictionTracker
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Duration, Timestamp
from typing_extensions import override

from beam_spark_runner.transforms.kafka.client import LOG, MetadataClient, NoAnswerError, inquirer
from beam_spark_runner.transforms.kafka.errors import KafkaAccessError
from beam_spark_runner.transforms.kafka.offsets import PartitionElement
from beam_spark_runner.transforms.kafka.positions import (
    EARLIEST,
    OffsetLookup,
    Partition,
    Position,
)
from beam_spark_runner.transforms.kafka.timestamps import TimestampPolicy
from beam_spark_runner.transforms.kafka.topic_lineage import note_read
from beam_spark_runner.transforms.kafka.topics import Topics, refuse_missing, warn_of_missing

_FIRST_TIMEOUT_S = 30.0
_LATER_TIMEOUT_S = 3.0
_GONE_S = 60  # as for its partitions: see ``consumers``
_MIN_LOOKS = 3  # of which none has found the topic
_LONGEST_GAP_S = 600  # between two of these


@dataclass(frozen=True)
class ReadSpec:
    """The topics and positions that a transform reads.

    Attributes:
        topics: The topics.
        config: The configuration of consumers.
        start: Where to begin in partitions that exist when the pipeline starts.
        stop: Where to end. None: the read is unbounded.
        transform: The label of the transform, for errors.
    """

    topics: Topics
    config: dict[str, Any]
    start: Position
    stop: Position | None
    transform: str

    def elements(
        self,
        asks: MetadataClient,
        partitions: Iterable[Partition],
        start: Position,
        watermark_us: int,
    ) -> list[PartitionElement]:
        """Return the elements for some partitions.

        With a ``stop``, partitions without offsets to read have none.

        Args:
            asks: Queries the brokers.
            partitions: The partitions.
            start: Where to begin in them.
            watermark_us: The initial watermark of each.

        Raises:
            KafkaAccessError: A position has no offset, or ``stop`` is after the end of a partition.
        """
        offsets = OffsetLookup(asks, _FIRST_TIMEOUT_S, self.transform)
        ends = offsets.ends(partitions)
        note_read(self.config, {topic for topic, _ in ends})
        starts = offsets.at(start, ends)
        if self.stop is None:
            return [
                PartitionElement(*partition, starts[partition], -1, watermark_us)
                for partition in ends
            ]
        stops = offsets.at(self.stop, ends)
        for partition, (_, high) in ends.items():
            if stops[partition] > high:
                raise KafkaAccessError(
                    f"stop is {stops[partition]} in {partition[0]}[{partition[1]}], whose last "
                    f"offset is {high - 1}",
                    self.transform,
                )
        return [
            PartitionElement(*partition, starts[partition], stops[partition], watermark_us)
            for partition in ends
            if starts[partition] < stops[partition]
        ]


class FindPartitions(beam.DoFn):  # type: ignore[misc]
    """Finds the partitions that exist when the pipeline starts.

    Args:
        sought: The topics and positions to read.
    """

    def __init__(self, sought: ReadSpec) -> None:
        self._sought = sought

    def process(self, _: Any) -> list[PartitionElement]:
        """Return the elements for all partitions."""
        sought = self._sought
        with inquirer(sought.config, sought.transform) as asks:
            counts = sought.topics.partitions(asks, _FIRST_TIMEOUT_S)
            refuse_missing(counts, sought.topics, sought.transform)
            every = [(topic, number) for topic, count in counts.items() for number in range(count)]
            return sought.elements(asks, every, sought.start, MIN_TIMESTAMP.micros)


class KnownPartitions(NamedTuple):
    """A restriction of ``DiscoverPartitions``: all partitions but the known ones.

    Attributes:
        has_begun: Whether all partitions that existed when the pipeline started are known.
        counts: The number of known partitions of each topic.
        is_done: Whether the restriction ends here: it is the primary of a split.
        missing: The known topics that did not exist at the last queries: when the first and the
            last of these queries were made, in seconds since the Unix epoch, and how many there
            were. A topic stays here once it is gone.
    """

    has_begun: bool
    counts: dict[str, int]
    is_done: bool = False
    missing: dict[str, tuple[int, int, int]] = {}  # noqa: RUF012  (nothing changes it)

    def is_gone(self, topic: str) -> bool:
        """Whether a topic was missing for so long that another one of its name is not read."""
        first_s, last_s, looks = self.missing.get(topic, (0, 0, 0))
        return last_s - first_s >= _GONE_S and looks >= _MIN_LOOKS

    def with_counts(self, counts: Mapping[str, int], now_s: int) -> "KnownPartitions":
        """Return what is known after a query.

        Args:
            counts: The number of partitions of each topic that exists.
            now_s: When it was made, in seconds since the Unix epoch.
        """
        missing = {}
        for topic, count in self.counts.items():
            if self.is_gone(topic):
                missing[topic] = self.missing[topic]
            elif count and not counts.get(topic):
                first_s, last_s, looks = self.missing.get(topic, (now_s, now_s, 0))
                if now_s - last_s > _LONGEST_GAP_S:
                    first_s, looks = now_s, 0
                missing[topic] = first_s, now_s, looks + 1
        highest = {topic: max(count, self.counts.get(topic, 0)) for topic, count in counts.items()}
        return KnownPartitions(True, {**self.counts, **highest}, missing=missing)


class KnownPartitionsCoder(Coder):  # type: ignore[misc]
    """Encodes ``KnownPartitions`` as JSON, which later versions of this package can decode."""

    @override
    def encode(self, value: KnownPartitions) -> bytes:
        fields = value._asdict()
        if not value.missing:  # earlier versions of this package do not know it
            del fields["missing"]
        return json.dumps(fields, sort_keys=True).encode()

    def decode(self, encoded: bytes) -> KnownPartitions:
        fields = json.loads(encoded)
        missing = {topic: tuple(when) for topic, when in fields.pop("missing", {}).items()}
        return KnownPartitions(**fields, missing=missing)

    def is_deterministic(self) -> bool:
        return True


class KnownPartitionsTracker(RestrictionTracker):  # type: ignore[misc]
    """Claims all partitions up to a count in each topic. The residual is all other partitions.

    It is not split before a claim: otherwise, queries that take longer than the time after which
    runners split would be repeated without an end.

    Args:
        known: The restriction.
    """

    def __init__(self, partitions: KnownPartitions) -> None:
        self._partitions = partitions
        self._has_claimed = False

    @override
    def current_restriction(self) -> KnownPartitions:
        return self._partitions

    def try_claim(self, position: dict[str, int]) -> bool:
        if self._partitions.is_done:
            return False
        self._partitions = self._partitions.with_counts(position, int(time.time()))
        self._has_claimed = True
        return True

    def check_done(self) -> None:
        if not self._partitions.is_done:
            raise ValueError("partitions are discovered without an end")

    def current_progress(self) -> RestrictionProgress:
        return RestrictionProgress(completed=sum(self._partitions.counts.values()), remaining=1)

    def try_split(
        self, fraction_of_remainder: float
    ) -> tuple[KnownPartitions, KnownPartitions] | None:
        if self._partitions.is_done or not self._has_claimed:
            return None
        residual, self._partitions = self._partitions, self._partitions._replace(is_done=True)
        return self._partitions, residual

    def is_bounded(self) -> bool:
        return self._partitions.is_done


class _KnownProvider(beam.transforms.core.RestrictionProvider):  # type: ignore[misc]
    def initial_restriction(self, element: Any) -> KnownPartitions:
        return KnownPartitions(False, {})

    def create_tracker(self, restriction: KnownPartitions) -> KnownPartitionsTracker:
        return KnownPartitionsTracker(restriction)

    def restriction_coder(self) -> KnownPartitionsCoder:
        return KnownPartitionsCoder()

    def restriction_size(self, element: Any, restriction: KnownPartitions) -> int:
        return 1


class _FromTheBeginning(beam.transforms.core.WatermarkEstimatorProvider):  # type: ignore[misc]
    def initial_estimator_state(self, element: Any, restriction: Any) -> Timestamp:
        return MIN_TIMESTAMP

    def create_watermark_estimator(self, estimator_state: Timestamp) -> ManualWatermarkEstimator:
        return ManualWatermarkEstimator(estimator_state)


_RESTRICTION = beam.DoFn.RestrictionParam(_KnownProvider())
_ESTIMATOR = beam.DoFn.WatermarkEstimatorParam(_FromTheBeginning())


class DiscoverPartitions(beam.DoFn):  # type: ignore[misc]
    """Finds the partitions that exist, and later those that are added.

    Its watermark is not after the timestamps of records in partitions that are yet to be found.

    Args:
        sought: The topics and positions to read.
        policy: The timestamp policy of the records.
        interval_s: The seconds between two queries.
    """

    def __init__(self, sought: ReadSpec, policy: TimestampPolicy, interval_s: float) -> None:
        self._sought, self._policy, self._interval_s = sought, policy, interval_s

    @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator]
    def process(
        self,
        _: Any,
        tracker: Any = _RESTRICTION,
        estimator: Any = _ESTIMATOR,
    ) -> Iterator[TimestampedValue]:
        """Emit new partitions, and defer the rest by the interval."""
        partitions: KnownPartitions = tracker.current_restriction()
        looked_us = time.time_ns() // 1000
        try:
            counts, elements = self._look(partitions, estimator.current_watermark())
        except NoAnswerError as error:
            if not partitions.has_begun:
                raise
            LOG.warning("%s; looking for new partitions later", error)
            counts, elements = partitions.counts, []
            looked_us = estimator.current_watermark().micros
        for element in elements if tracker.try_claim(counts) else ():
            yield TimestampedValue(element, Timestamp(micros=element.watermark_us))
        self._warn_of_gone(partitions, tracker.current_restriction())
        unknown_us = self._policy.of_unknown_partitions(
            looked_us, looked_us + round(self._interval_s * 1e6)
        )
        if unknown_us > estimator.current_watermark().micros:
            estimator.set_watermark(Timestamp(micros=unknown_us))
        tracker.defer_remainder(Duration(self._interval_s))

    def _warn_of_gone(self, previous: KnownPartitions, current: KnownPartitions) -> None:
        for topic in current.missing:
            if current.is_gone(topic) and not previous.is_gone(topic):
                LOG.warning(
                    "%s: topic %s does not exist any more. If it is created again, it is not read",
                    *(self._sought.transform, topic),
                )

    def _look(
        self, partitions: KnownPartitions, watermark: Timestamp
    ) -> tuple[dict[str, int], list[PartitionElement]]:
        sought = self._sought
        timeout_s = _LATER_TIMEOUT_S if partitions.has_begun else _FIRST_TIMEOUT_S
        with inquirer(sought.config, sought.transform) as asks:
            counts = sought.topics.partitions(asks, timeout_s)
            if not partitions.has_begun:
                warn_of_missing(counts, sought.transform)
            new = [
                (topic, number)
                for topic, count in counts.items()
                if not partitions.is_gone(topic)
                for number in range(partitions.counts.get(topic, 0), count)
            ]
            # Partitions that were added later are read from their first record.
            has_position = not partitions.has_begun or sought.start.time_ms is not None
            start = sought.start if has_position else Position(EARLIEST)
            elements = sought.elements(asks, new, start, watermark.micros) if new else []
            if elements and partitions.has_begun:
                names = ", ".join(f"{element.topic}[{element.partition}]" for element in elements)
                LOG.info("%s: new partitions: %s", sought.transform, names)
        return counts, elements
