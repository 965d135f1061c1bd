"""What is made of partitions from which nothing comes, over several calls and minutes."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.runners.sdf_utils import RestrictionTrackerView, ThreadsafeRestrictionTracker
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner.transforms.kafka import consumers, inquiries, partitions
from beam_spark_runner.transforms.kafka.consumers import Consumers
from beam_spark_runner.transforms.kafka.errors import KafkaAccessError
from beam_spark_runner.transforms.kafka.inquiries import Inquiries
from beam_spark_runner.transforms.kafka.offsets import OffsetInterval, OffsetsTracker
from beam_spark_runner.transforms.kafka.partitions import (
    ReadPartitions,
    ReadPartitionsForever,
)
from beam_spark_runner.transforms.kafka.reading import Reading
from beam_spark_runner.transforms.kafka.timestamps import (
    CreateTime,
    ProcessingTime,
    TimestampPolicy,
)

POLICIES = [ProcessingTime(), CreateTime()]


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def time_ns(self) -> int:
        return int(self.now_s * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for each in (partitions, consumers, inquiries):
        monkeypatch.setattr(each, "time", made)
    return made


class Silent:
    """A consumer at offset 5, the end of the log.

    Attributes:
        gaps: How many offsets without records its next answers have; then it has nothing.
        on_wait: Called after each time that it has waited in vain.
    """

    has_answered = is_at_end = True

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.position = 5
        self.gaps: list[int] = []
        self.on_wait: Callable[[], object] = lambda: None

    def poll(self, most: int, wait_s: float) -> Sequence[Any]:
        if self.gaps:
            self.position += self.gaps.pop(0)
        else:
            self._clock.now_s += wait_s
            self.on_wait()
        return []

    def known_end(self) -> int:
        return 5

    def put_back(self, records: Sequence[Any]) -> None:
        assert not records

    def close(self) -> None: ...


class Call:
    """Calls that read a partition, one after the other, each from where the one before ended."""

    def __init__(
        self,
        clock: Clock,
        stop: int | None,
        policy: TimestampPolicy,
        known: Consumers | None = None,
        number: int = 0,
    ) -> None:
        self._clock, self.consumer, self._number = clock, Silent(clock), number
        self.known, self.rest = known or Consumers({}, "Read"), OffsetInterval(5, stop)
        reading = Reading("id", {}, policy, None, None, False, None, 2.0, False, "Read")
        self._fn = (ReadPartitionsForever if stop is None else ReadPartitions)(reading)
        self._fn._consumers = self.known
        self.give_back()

    def give_back(self) -> None:
        self.known.give_back("topic", self._number, self.consumer)  # type: ignore[arg-type]

    def __call__(self, most_s: float = 10) -> bool:
        """Read for so long at most. Return whether the partition has not ended."""
        tracker = ThreadsafeRestrictionTracker(OffsetsTracker(self.rest))
        until_s = self._clock.now_s + most_s
        self.consumer.on_wait = lambda: self._clock.now_s >= until_s and tracker.try_split(0)
        estimator = ManualWatermarkEstimator(Timestamp(0))
        element = ("topic", self._number, 5, -1 if self.rest.stop is None else self.rest.stop, 0)
        assert not [*self._fn.read(element, RestrictionTrackerView(tracker), estimator)]
        if (stop := self.rest.stop) is not None:
            self.rest = OffsetInterval(tracker.current_restriction().stop, stop)
            return self.rest.start < stop
        deferred = tracker.deferred_status()
        if deferred is not None:
            self.rest, _ = deferred
        return deferred is not None


def test_a_bounded_read_fails_however_often_it_is_cut(clock: Clock) -> None:
    call = Call(clock, 10, ProcessingTime())
    problem = r"topic\[0\]: nothing has come after offset 5 for 120 s, .* records below 10"
    for _ in range(2):  # the second time, the step is tried again
        for _ in range(4):
            assert call(29)
            clock.now_s += 300  # in which the task has other work
        with pytest.raises(KafkaAccessError, match=problem):
            call(29)
        call.give_back()


def test_what_comes_ends_the_silence_of_a_bounded_read(clock: Clock) -> None:
    call = Call(clock, 8, ProcessingTime())
    for offset in (5, 6, 7):
        for _ in range(4):
            assert call(29)
        assert call.rest == OffsetInterval(offset, 8)
        call.consumer.gaps = [1]
    assert not call(29)


class Brokers:
    """What brokers say of the ends of partitions: an offset, or the name of an error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class KafkaException(Exception):
            """As ``confluent-kafka`` has it: the only argument is a ``KafkaError``."""

        self._error = KafkaException
        self.says: int | str = 5
        self.asked = 0
        module = SimpleNamespace(KafkaException=KafkaException)
        monkeypatch.setattr(inquiries, "confluent", lambda _: module)
        monkeypatch.setattr(Inquiries, "_end", self._end)

    def _end(self, topic: str, partition: int) -> int:
        self.asked += 1
        if isinstance(self.says, int):
            return self.says
        name = self.says
        raise self._error(SimpleNamespace(name=lambda: name))


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    return Brokers(monkeypatch)


def read_for(clock: Clock, call: Call, most_s: float, pause_s: float = 1.0) -> float:
    """Read again and again. Return the seconds until the partition has ended; -1: it has not."""
    began_s = clock.now_s
    while clock.now_s < began_s + most_s:
        if not call():
            return clock.now_s - began_s
        clock.now_s += pause_s
    return -1


@pytest.mark.parametrize("policy", POLICIES)
def test_a_deleted_topic_ends_after_a_minute(
    clock: Clock, brokers: Brokers, policy: TimestampPolicy
) -> None:
    call = Call(clock, None, policy)
    assert read_for(clock, call, 30) == -1
    brokers.says = "UNKNOWN_TOPIC_OR_PART"
    assert 60 < read_for(clock, call, 1000) < 82


def test_with_processing_time_brokers_are_asked_seldom(clock: Clock, brokers: Brokers) -> None:
    """While they are, the task reads nothing."""
    call = Call(clock, None, ProcessingTime())
    assert read_for(clock, call, 100) == -1
    assert brokers.asked <= 11
    brokers.says, brokers.asked = "_TRANSPORT", 0
    others = [Call(clock, None, ProcessingTime(), call.known, number) for number in (1, 2, 3)]
    for number in range(200):
        assert [call, *others][number % 4]()
        clock.now_s += 1
    assert 5 <= brokers.asked <= 8


@pytest.mark.parametrize("policy", POLICIES)
def test_two_short_absences_are_no_long_one(
    clock: Clock, brokers: Brokers, policy: TimestampPolicy
) -> None:
    call = Call(clock, None, policy)
    for _ in range(2):
        brokers.says = "UNKNOWN_TOPIC_OR_PART"
        assert read_for(clock, call, 25) == -1
        clock.now_s += 86_400  # in which it is read elsewhere
    assert 60 < read_for(clock, call, 1000) < 82


@pytest.mark.parametrize("policy", POLICIES)
def test_a_topic_that_something_comes_from_is_there(
    clock: Clock, brokers: Brokers, policy: TimestampPolicy
) -> None:
    call = Call(clock, None, policy)
    brokers.says = "UNKNOWN_TOPIC_OR_PART"
    assert read_for(clock, call, 50) == -1
    call.consumer.gaps = [1]
    assert 60 < read_for(clock, call, 1000) < 82
