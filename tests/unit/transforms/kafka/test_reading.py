"""When the loop over a partition's records ends, over answers of a consumer that are given."""

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from apache_beam.io.iobase import RestrictionTracker
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.runners.sdf_utils import RestrictionTrackerView, ThreadsafeRestrictionTracker
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue
from typing_extensions import override

from beam_spark_runner.transforms.kafka import inquiries
from beam_spark_runner.transforms.kafka.consumers import Consumers
from beam_spark_runner.transforms.kafka.errors import KafkaAccessError
from beam_spark_runner.transforms.kafka.inquiries import Inquiries
from beam_spark_runner.transforms.kafka.offsets import OffsetInterval, OffsetsTracker
from beam_spark_runner.transforms.kafka.partition_consumer import OutOfRangeError
from beam_spark_runner.transforms.kafka.partitions import ReadPartitionsForever
from beam_spark_runner.transforms.kafka.reading import Reading, RecordConverter
from beam_spark_runner.transforms.kafka.timestamps import CreateTime, EventTime, TimestampPolicy
from tests.unit.transforms.kafka.messages import Record


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

    @property
    def inquiries(self) -> "Answers":
        """As ``Consumers``."""
        return self

    def borrow(self, topic: str, partition: int, offset: int) -> "Answers":
        """As ``Consumers``."""
        return self

    def poll(self, most: int, wait_s: float) -> Any:
        count, self._end = self.left.pop(0)
        self.position += count
        return [Record(self.position - count + each) for each in range(count)]

    def known_end(self) -> int:
        return self._end

    def put_back(self, records: Sequence[Any]) -> None:
        assert not records

    def give_back(self, *_: Any) -> None: ...

    def end_silence(self, *_: Any) -> None: ...

    def end_of(self, topic: str, partition: int) -> tuple[int, int]:
        return self._end, 0

    def is_gone(self, topic: str, partition: int) -> bool:
        return False

    def close(self) -> None: ...


def read(answers: Answers) -> tuple[list[WindowedValue], RestrictionTracker]:
    """Return the elements of one call, and the tracker after it."""
    reading = Reading("id", {}, CreateTime(), None, None, False, None, 5.0, False, "Read")
    fn = ReadPartitionsForever(reading)
    fn._consumers = answers  # type: ignore[assignment]
    tracker = ThreadsafeRestrictionTracker(OffsetsTracker(OffsetInterval(0, None)))
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


def test_a_new_consumer_at_the_end_does_not_wait_for_the_broker() -> None:
    answers = Answers([(0, 0)])
    answers.has_answered = False
    elements, tracker = read(answers)
    assert not elements
    assert deferred_at(tracker) == 0


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


def test_records_are_sent_in_chunks_before_the_watermark_advances() -> None:
    reading = Reading("id", {}, CreateTime(), None, None, False, None, 5.0, False, "Read")
    fn, estimator = ReadPartitionsForever(reading), ManualWatermarkEstimator(Timestamp(0))
    fn._consumers = Answers([(300, 300)])  # type: ignore[assignment]
    sent: list[tuple[Any, WindowedValue]] = []

    def send(values: list[Any], windowed: list[WindowedValue]) -> None:
        assert 0 < len(values) <= 128
        assert estimator.current_watermark() == Timestamp(0)
        sent.extend(zip(values, windowed, strict=True))

    fn.send_new_results = send
    tracker = ThreadsafeRestrictionTracker(OffsetsTracker(OffsetInterval(0, None)))
    assert not [*fn.read(("topic", 0, 0, -1, 0), RestrictionTrackerView(tracker), estimator)]
    assert [value for value, _ in sent] == [(b"key", b"%d" % each) for each in range(300)]
    for value, windowed in sent:
        assert (windowed.value, windowed.timestamp, len(windowed.windows)) == (
            value,
            Timestamp(7),
            1,
        )
    assert estimator.current_watermark() == Timestamp(7)


def test_a_deserializer_may_return_one_object_again_and_again() -> None:
    buffer = bytearray()

    def deserialize(value: bytes) -> bytearray:
        buffer[:] = value
        return buffer

    reading = Reading("id", {}, CreateTime(), None, deserialize, False, None, 5.0, False, "Read")
    fn, estimator = ReadPartitionsForever(reading), ManualWatermarkEstimator(Timestamp(0))
    fn._consumers = Answers([(5, 5)])  # type: ignore[assignment]
    fn.send_new_results = lambda values, windowed: pytest.fail("it may change the values")
    tracker = ThreadsafeRestrictionTracker(OffsetsTracker(OffsetInterval(0, None)))
    elements = fn.read(("topic", 0, 0, -1, 0), RestrictionTrackerView(tracker), estimator)
    seen = [(key, bytes(value)) for key, value in (each.value for each in elements)]
    assert seen == [(b"key", b"%d" % each) for each in range(5)]


@pytest.mark.parametrize(
    ("policy", "timestamp_ms", "problem"),
    [
        (CreateTime(), -1, "a record has no timestamp: use ProcessingTime"),
        (CreateTime(), 1_700_000_000_000_000_000, "is no time that Beam has"),
        (EventTime(0, lambda record: json.loads(record.value or b"")["at"]), 0, "TypeError"),
        (EventTime(0, lambda record: json.loads(record.topic)), 0, "JSONDecodeError"),
    ],
)
def test_a_record_without_a_time_is_named(
    policy: TimestampPolicy, timestamp_ms: int, problem: str
) -> None:
    reading = Reading("id", {}, policy, None, None, False, None, 5.0, False, "Read")
    before = [] if policy.reads_records else [Record(2)]
    with pytest.raises(KafkaAccessError) as raised:
        RecordConverter(reading).times_us([*before, Record(3, timestamp_ms)], 0)
    assert str(raised.value).startswith("Read: the record of topic[0] at offset 3 has no timestamp")
    assert problem in str(raised.value)


class Unreached(Answers):
    """A broker that has said that an offset does not exist, and does not answer any more."""

    def __init__(self) -> None:
        super().__init__([(0, 5)])
        self.sought: list[int] = []

    @override
    def poll(self, most: int, wait_s: float) -> Any:
        raise OutOfRangeError

    def bounds_of(self, topic: str, partition: int) -> None:
        return None

    def seek(self, offset: int) -> None:
        self.sought.append(offset)


def test_offsets_are_not_judged_while_no_broker_answers() -> None:
    answers = Unreached()
    elements, tracker = read(answers)
    assert not elements
    assert answers.sought == [0]
    assert deferred_at(tracker) == 0


def test_the_backlog_of_a_partition_is_what_its_log_has() -> None:
    reading = Reading("id", {}, CreateTime(), None, None, False, None, 5.0, False, "Read")
    fn = ReadPartitionsForever(reading)
    element, rest = ("topic", 0, 0, -1, 0), OffsetInterval(5, None)
    assert fn.restriction_size(element, rest) == 1  # in a process that has not read it
    known = Consumers({}, "Read")
    fn._consumers = known
    assert fn.restriction_size(element, rest) == 1
    known.give_back("topic", 0, Answers([(0, 50)]))  # type: ignore[arg-type]
    assert fn.restriction_size(element, rest) == 45
    assert fn.restriction_size(("topic", 1, 0, -1, 0), rest) == 1
    known.give_back("topic", 0, Answers([(0, 4)]))  # type: ignore[arg-type]
    assert fn.restriction_size(element, rest) == 0


class Deleted(Answers):
    """A partition whose topic was deleted."""

    def __init__(self, *, is_gone: bool) -> None:
        super().__init__([(2, 5), (0, 5)])
        self.is_at_end = True
        self._is_gone = is_gone

    def end_of(self, topic: str, partition: int) -> tuple[int, int]:
        return -1, 0

    def is_gone(self, topic: str, partition: int) -> bool:
        return self._is_gone


def test_a_partition_that_has_gone_ends(caplog: pytest.LogCaptureFixture) -> None:
    elements, tracker = read(Deleted(is_gone=False))
    assert (len(elements), deferred_at(tracker)) == (2, 2)
    assert caplog.text == ""
    elements, tracker = read(Deleted(is_gone=True))
    assert len(elements) == 2
    assert tracker.deferred_status() is None
    tracker.check_done()
    assert "topic[0] does not exist any more: it ends at offset 2" in caplog.text


class KafkaException(Exception):
    """As ``confluent-kafka`` has it: the only argument is a ``KafkaError``."""


def test_only_a_partition_that_was_there_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(
        TopicPartition=lambda *place: place, KafkaException=KafkaException, Consumer=None
    )
    monkeypatch.setattr(inquiries, "confluent", lambda _: module)
    monkeypatch.setattr(inquiries, "_ASK_AGAIN_S", -1.0)
    known = Consumers({}, "Read")

    def end(*_: Any) -> int:
        raise KafkaException(SimpleNamespace(name=lambda: "UNKNOWN_TOPIC_OR_PART"))

    monkeypatch.setattr(known.inquiries, "_end", end)
    known.give_back("topic", 0, Answers([(0, 50)]))  # type: ignore[arg-type]
    known.give_back("topic", 0, Answers([(0, -1)]))  # type: ignore[arg-type]
    for number in (0, 1):
        assert known.inquiries.end_of("topic", number) == (-1, 0)
        assert not known.inquiries.is_gone("topic", number)
    monkeypatch.setattr(inquiries, "_GONE_S", -1.0)
    assert known.inquiries.end_of("topic", 0) == (-1, 0)
    assert known.inquiries.is_gone("topic", 0)
    assert not known.inquiries.is_gone("topic", 1)  # which this process has never seen
    assert not known.inquiries.is_gone("topic", 2)


class Asked:
    """A client without partitions that answers nothing but refusals."""

    def __init__(self) -> None:
        self.polls = 0

    def get_watermark_offsets(self, *_: Any, timeout: float) -> tuple[int, int]:
        raise KafkaException(SimpleNamespace(name=lambda: "_TRANSPORT"))

    def commit(self, *, offsets: Any, asynchronous: bool) -> list[Any]:
        return [SimpleNamespace(error="refused")]

    def poll(self, wait_s: float) -> None:
        assert wait_s == 0
        self.polls += 1


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("end_of", ("topic", 0)), ("bounds_of", ("topic", 0)), ("commit", ("topic", 0, 5))],
)
def test_clients_for_queries_report_their_errors(
    monkeypatch: pytest.MonkeyPatch, name: str, arguments: Any
) -> None:
    """Errors and log lines wait in a client until it is polled."""
    client = Asked()
    module = SimpleNamespace(TopicPartition=lambda *place: place, KafkaException=KafkaException)
    monkeypatch.setattr(inquiries, "confluent", lambda _: module)
    monkeypatch.setattr(inquiries, "open_consumer", lambda *_: client)
    getattr(Inquiries({}, "Read"), name)(*arguments)
    assert client.polls == 1
