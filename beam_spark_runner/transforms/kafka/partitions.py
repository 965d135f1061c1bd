"""Reads partitions: a splittable DoFn whose restrictions are offsets."""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import apache_beam as beam
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Duration, Timestamp
from apache_beam.utils.windowed_value import WindowedValue, create
from typing_extensions import override

from beam_spark_runner.transforms.kafka.client import LOG
from beam_spark_runner.transforms.kafka.consumers import Consumers
from beam_spark_runner.transforms.kafka.errors import KafkaAccessError
from beam_spark_runner.transforms.kafka.offsets import (
    ELEMENT_TYPE,
    NO_MORE,
    OffsetInterval,
    OffsetsProvider,
    WholePartitionsProvider,
)
from beam_spark_runner.transforms.kafka.partition_consumer import OutOfRangeError, PartitionConsumer
from beam_spark_runner.transforms.kafka.reading import Reading, RecordConverter
from beam_spark_runner.transforms.kafka.sharing import release, shared

_MAX_AT_ONCE = 1000
_CHUNK = 128  # records that are sent together; librdkafka limits their bytes
_WAIT_S = 0.02  # for a consumer whose fetch requests are under way
_STEP_S = 0.1  # of longer waits: in between, a restriction may be split
_IDLE_S = 0.1
_CAUGHT_UP_S = 0.01
_IS_BEHIND = 1000  # records that the broker has reported, and not sent yet
_SILENT_S = 120.0  # the longest wait of a bounded read for records
_GLOBAL = (GlobalWindow(),)


class _FromTheElement(beam.transforms.core.WatermarkEstimatorProvider):  # type: ignore[misc]
    def initial_estimator_state(self, element: ELEMENT_TYPE, restriction: Any) -> Timestamp:
        return Timestamp(micros=element[4])

    def create_watermark_estimator(self, estimator_state: Timestamp) -> ManualWatermarkEstimator:
        return ManualWatermarkEstimator(estimator_state)


_PIECES = beam.DoFn.RestrictionParam(OffsetsProvider())
_ENDLESS = beam.DoFn.RestrictionParam()  # the DoFn itself is the restriction provider
_WHOLE = beam.DoFn.RestrictionParam(WholePartitionsProvider())
_ESTIMATOR = beam.DoFn.WatermarkEstimatorParam(_FromTheElement())


class _ReadsPartitions(beam.DoFn):  # type: ignore[misc]
    """Reads partitions; subclasses declare the parameters of ``process``.

    Attributes:
        send_new_results: See ``harness.beam.splittable_steps``. Beam's SDK harnesses do not set it.

    Args:
        reading: How partitions are read.
    """

    send_new_results: Callable[[list[Any], list[WindowedValue]], None] | None = None

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._converter = RecordConverter(reading)

    def setup(self) -> None:
        """Get the consumers that all instances in this process share."""
        reading = self._reading
        self._consumers = shared(reading.id, lambda: Consumers(reading.config, reading.transform))

    def teardown(self) -> None:
        """Release the consumers; the last instance closes them."""
        release(self._reading.id)

    def read(
        self, element: ELEMENT_TYPE, tracker: Any, estimator: Any, finalizer: Any = None
    ) -> Iterator[WindowedValue]:
        """Read a restriction up to its end or, if it has none, up to the end of the log.

        With a ``finalizer``, offsets are committed when the bundle is finalized.
        """
        topic, number, *_ = element
        claimed: int = tracker.current_restriction().start
        start = claimed
        consumer = self._consumers.borrow(topic, number, claimed)
        end = consumer.known_end()
        waited_s = time.monotonic()
        waits_s = waited_s + self._reading.polling_timeout_s
        try:
            while not self._is_done(tracker, claimed):
                wait_s = _WAIT_S if consumer.has_answered else _STEP_S
                try:
                    records = consumer.poll(_MAX_AT_ONCE, wait_s)
                except OutOfRangeError as error:
                    self._go_to_an_offset_that_exists(consumer, topic, number, error)
                    records = []
                if records or consumer.position > claimed:
                    self._consumers.inquiries.end_silence(topic, number, claimed)
                    records, upto = self._claimed(tracker, claimed, records, consumer)
                    claimed = upto
                    yield from self._emitted(records, estimator)
                    waited_s = time.monotonic()
                    waits_s = waited_s + self._reading.polling_timeout_s
                    if end <= start:
                        end = consumer.known_end()
                    if start < end <= claimed and tracker.current_restriction().stop is None:
                        # Caught up: end here, so that a busy topic does not delay these results.
                        tracker.defer_remainder(Duration(_CAUGHT_UP_S))
                        break
                elif (stop := tracker.current_restriction().stop) is not None:
                    now_s = time.monotonic()
                    self._check_silence(topic, number, claimed, stop, now_s - waited_s)
                    waited_s = now_s
                elif self._is_behind(consumer) and time.monotonic() < waits_s:
                    continue
                elif (
                    consumer.has_answered
                    or time.monotonic() > waits_s
                    # At the end of the log, a broker answers the first fetch only after a while.
                    or self._consumers.inquiries.end_of(topic, number)[0] == claimed
                ):
                    self._advance_without_records(estimator, topic, number, claimed)
                    if self._consumers.inquiries.is_gone(topic, number):
                        LOG.warning(
                            "%s: %s[%d] does not exist any more: it ends at offset %d. If it is "
                            "created again, it is not read",
                            *(self._reading.transform, topic, number, claimed),
                        )
                        tracker.try_claim(NO_MORE)
                    else:
                        tracker.defer_remainder(Duration(_IDLE_S))
                    break
        except BaseException:  # records that the consumer has returned may be lost
            with contextlib.suppress(Exception):
                consumer.close()
            raise
        self._consumers.give_back(topic, number, consumer)
        if finalizer is not None and claimed > start:
            finalizer.register(partial(self._consumers.inquiries.commit, topic, number, claimed))

    def _emitted(self, records: list[Any], estimator: Any) -> Iterator[WindowedValue]:
        """Emit records, and then advance the watermark."""
        if not records:
            return
        now_us = time.time_ns() // 1000
        send_new_results = self.send_new_results if self._converter.makes_new_values else None
        newest_us = MIN_TIMESTAMP.micros
        for start in range(0, len(records), _CHUNK):
            some = records[start : start + _CHUNK]
            times_us = self._converter.times_us(some, now_us)
            elements = self._converter.elements(some)
            if send_new_results is None:  # a deserializer may return one object again and again
                yield from map(create, elements, times_us, itertools.repeat(_GLOBAL))
            else:
                values = [*elements]
                windowed = map(create, values, times_us, itertools.repeat(_GLOBAL))
                send_new_results(values, [*windowed])
            newest_us = max(newest_us, *times_us)
        watermark = Timestamp(micros=self._reading.policy.watermark_after(newest_us, now_us))
        if watermark > estimator.current_watermark():
            estimator.set_watermark(watermark)

    def _check_silence(
        self, topic: str, number: int, claimed: int, stop: int, more_s: float
    ) -> None:
        """Raise if readers have waited too long for an offset below ``stop``.

        Raises:
            KafkaAccessError: They have. If the step is retried, they wait as long again.
        """
        if self._consumers.inquiries.silence(topic, number, claimed, more_s) <= _SILENT_S:
            return
        self._consumers.inquiries.end_silence(topic, number, claimed)
        raise KafkaAccessError(
            f"{topic}[{number}]: nothing has come after offset {claimed} for {_SILENT_S:.0f} s, "
            f"but there should be records below {stop}",
            self._reading.transform,
        )

    @staticmethod
    def _is_done(tracker: Any, claimed: int) -> bool:
        stop = tracker.current_restriction().stop
        return stop is not None and claimed >= stop

    @staticmethod
    def _is_behind(consumer: PartitionConsumer) -> bool:
        return not consumer.is_at_end and consumer.known_end() - consumer.position > _IS_BEHIND

    @staticmethod
    def _claimed(
        tracker: Any, claimed: int, records: list[Any], consumer: PartitionConsumer
    ) -> tuple[list[Any], int]:
        """Claim the records that are within the restriction, and put others back.

        Returns:
            The claimed records, and the offset below which all offsets are claimed.
        """
        upto = consumer.position
        while not tracker.try_claim(upto):
            upto = max(claimed, tracker.current_restriction().stop)
        if upto == consumer.position:
            return records, upto
        mine = [record for record in records if record.offset() < upto]
        consumer.put_back(records[len(mine) :])
        return mine, upto

    def _advance_without_records(
        self, estimator: Any, topic: str, number: int, claimed: int
    ) -> None:
        policy = self._reading.policy
        since_us = time.time_ns() // 1000
        if policy.asks_for_end:
            end, since_us = self._consumers.inquiries.end_of(topic, number)
            if not 0 <= end <= claimed:
                return
        watermark = Timestamp(micros=policy.without_records(since_us))
        if watermark > estimator.current_watermark():
            estimator.set_watermark(watermark)

    def _go_to_an_offset_that_exists(
        self, consumer: PartitionConsumer, topic: str, number: int, error: Exception
    ) -> None:
        reading, position = self._reading, consumer.position
        bounds = self._consumers.inquiries.bounds_of(topic, number)
        if bounds is None:  # an outage: try the same offset again
            consumer.seek(position)
            return
        low, end = bounds
        where = f"{topic}[{number}]: there is no offset {position}; it has {low} to {end - 1}"
        if reading.reset is None:
            raise KafkaAccessError(
                f"{where}. Records were deleted before they were read, or the topic was created "
                "again. With auto.offset.reset=earliest in consumer_config, reading continues with "
                f"what is left ({error})",
                reading.transform,
            )
        target = low if reading.reset == "earliest" else end
        if target < position:
            raise KafkaAccessError(
                f"{where}. The topic is shorter than it was: it was created again, or a broker has "
                "lost its end. Start without the checkpoint to read it from its beginning",
                reading.transform,
            )
        LOG.warning("%s; continuing with %d (auto.offset.reset)", where, target)
        consumer.seek(target)


class ReadPartitions(_ReadsPartitions):
    """Reads partitions up to a given offset."""

    def process(
        self, element: ELEMENT_TYPE, tracker: Any = _PIECES, estimator: Any = _ESTIMATOR
    ) -> Iterator[WindowedValue]:
        """Read a restriction."""
        return self.read(element, tracker, estimator)


class _ReadsForever(_ReadsPartitions, OffsetsProvider):
    """Reads partitions without an end. It is the provider of their restrictions, too."""

    @override
    def restriction_size(self, element: ELEMENT_TYPE, restriction: OffsetInterval) -> int:
        """Return the number of unread offsets of the log as this process knows it; 1: unknown."""
        topic, number, *_ = element
        consumers = getattr(self, "_consumers", None)  # none before ``setup``
        end = -1 if consumers is None else consumers.inquiries.known_end_of(topic, number)
        return 1 if end < 0 else max(0, end - restriction.start)


class ReadPartitionsForever(_ReadsForever):
    """Reads partitions without an end."""

    @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator]
    def process(
        self, element: ELEMENT_TYPE, tracker: Any = _ENDLESS, estimator: Any = _ESTIMATOR
    ) -> Iterator[WindowedValue]:
        """Read a restriction up to the end of the log, and defer the rest."""
        return self.read(element, tracker, estimator)


class ReadPartitionsAndCommit(_ReadsPartitions):
    """Reads partitions up to a given offset, and commits offsets."""

    def process(
        self,
        element: ELEMENT_TYPE,
        finalizer: Any = beam.DoFn.BundleFinalizerParam,  # Beam requires it before the others
        tracker: Any = _WHOLE,
        estimator: Any = _ESTIMATOR,
    ) -> Iterator[WindowedValue]:
        """Read a restriction."""
        return self.read(element, tracker, estimator, finalizer)


class ReadPartitionsForeverAndCommit(_ReadsForever):
    """Reads partitions without an end, and commits offsets."""

    @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator]
    def process(
        self,
        element: ELEMENT_TYPE,
        finalizer: Any = beam.DoFn.BundleFinalizerParam,  # Beam requires it before the others
        tracker: Any = _ENDLESS,
        estimator: Any = _ESTIMATOR,
    ) -> Iterator[WindowedValue]:
        """Read a restriction up to the end of the log, and defer the rest."""
        return self.read(element, tracker, estimator, finalizer)
