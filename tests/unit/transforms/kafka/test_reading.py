"""When the loop over a partition's records ends, over answers of a consumer that are given."""

from collections.abc import Sequence
from typing import Any

from apache_beam.io.iobase import RestrictionTracker
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.runners.sdf_utils import RestrictionTrackerView, ThreadsafeRestrictionTracker
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.transforms.kafka.offsets import Offsets, OffsetsTracker
from beam_spark_runner.transforms.kafka.partitions import Reading, ReadPartitionsForever
from beam_spark_runner.transforms.kafka.timestamps import CreateTime


class Record:
    """One with a time of seven seconds."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return b"key"

    def value(self) -> bytes:
        return b"%d" % self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, 7000


class Answers:
    """Stands for ``Consumers``, and for the consumer that they have.

    Args:
        answers: what the consumer takes one after the other: how many records, and what the
            broker says then is the end of the log.
    """

    has_answered = True
    is_at_end = False

    def __init__(self, answers: Sequence[tuple[int, int]]) -> None:
        self.left = [*answers]
        self.position, self._end = 0, answers[0][1]

    def take(self, *arguments: Any) -> Any:
        if len(arguments) == 3:  # as ``Consumers``
            return self
        count, self._end = self.left.pop(0)
        self.position += count
        return [Record(self.position - count + each) for each in range(count)]

    def known_end(self) -> int:
        return self._end

    def put_back(self, records: Sequence[Any]) -> None:
        assert not records

    def give_back(self, *_: Any) -> None: ...

    def end_of(self, topic: str, partition: int) -> tuple[int, int]:
        return self._end, 0

    def close(self) -> None: ...


def read(answers: Answers) -> tuple[list[WindowedValue], RestrictionTracker]:
    """Return the elements of one call, and the tracker after it."""
    reading = Reading("id", {}, CreateTime(), None, None, False, None, 5.0, False, "Read")
    fn = ReadPartitionsForever(reading)
    fn._consumers = answers  # type: ignore[assignment]
    tracker = ThreadsafeRestrictionTracker(OffsetsTracker(Offsets(0, None)))
    estimator = ManualWatermarkEstimator(Timestamp(0))
    elements = fn.read(("topic", 0, 0, -1, 0), RestrictionTrackerView(tracker), estimator)
    return [*elements], tracker


def deferred_at(tracker: Any) -> int:
    """Return the offset with which the remainder begins."""
    restriction, _ = tracker.deferred_status()
    return int(restriction.start)


def test_records_that_come_all_the_time_are_for_the_next_call() -> None:
    answers = Answers([(2, 3), (1, 5), (2, 6), (1, 7)])
    elements, tracker = read(answers)
    assert [each.value for each in elements] == [(b"key", b"%d" % each) for each in range(3)]
    assert deferred_at(tracker) == 3


def test_the_end_is_that_of_the_first_answer_if_there_was_none_before() -> None:
    answers = Answers([(0, -1), (2, 5), (3, 9), (4, 20)])
    answers.has_answered = False
    elements, tracker = read(answers)
    assert len(elements) == 5
    assert deferred_at(tracker) == 5


def test_a_pause_of_the_broker_is_no_end() -> None:
    elements, tracker = read(Answers([(1000, 5000), (0, 5000), (0, 5000), (4000, 5000)]))
    assert len(elements) == 5000
    assert deferred_at(tracker) == 5000


def test_records_of_open_transactions_are_not_waited_for() -> None:
    answers = Answers([(0, 5000), (1, 5000)])
    answers.is_at_end = True
    elements, tracker = read(answers)
    assert not elements
    assert deferred_at(tracker) == 0


def test_elements_have_the_times_of_records_and_the_global_window() -> None:
    ((first, *_), _) = read(Answers([(1, 1)]))
    assert first.timestamp == Timestamp(7)
    assert len(first.windows) == 1
