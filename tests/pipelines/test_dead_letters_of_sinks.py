"""What sinks refuse, as dead letters in place of errors."""

from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.transforms.window import FixedWindows, SlidingWindows, TimestampedValue

from beam_spark_runner.core.errors import BundleFailedError
from beam_spark_runner.transforms import WriteToKafka
from beam_spark_runner.transforms.kafka import (
    ExactlyOnce,
    KafkaAccessError,
    ProducerRecord,
    write,
)
from tests.harvest import harvest
from tests.pipelines.kafka_in_memory import Kafka

SERVERS = {"bootstrap.servers": "broker:9092", "message.max.bytes": 100}
LARGE = b"x" * 200
TEXTS: list[Any] = ["4", "5"]  # which a serializer encodes
ELEMENTS: list[Any] = [
    (b"a", "1"),
    (b"b", 7),  # has no encode
    "no pair",
    (b"c", "2"),
    (b"d", LARGE.decode()),
    ("no bytes", "3"),
    ProducerRecord(TEXTS[0], b"e", topic="no topic"),
    ProducerRecord(TEXTS[1], b"f"),
]
ONCE, AT_LEAST_ONCE = "exactly_once", "at_least_once"
REFUSED = ["(b'b', 7)", "'no pair'", f"(b'd', {LARGE.decode()!r})", "('no bytes', '3')"]


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    with Kafka().serving() as serving:
        yield serving


def harvest_here(build: Callable[[beam.Pipeline], Any], *flags: str) -> Any:
    """Run a pipeline in this process, which has the brokers."""
    return harvest(None, build, "--spark_master_url=in-process", *flags)  # type: ignore[arg-type]


def encoded(value: Any) -> bytes:
    result: bytes = value.encode()
    return result


def sink(once: ExactlyOnce | None = None) -> WriteToKafka:
    return WriteToKafka(SERVERS, "sink", value_serializer=encoded, exactly_once=once)


def rejecting(
    elements: list[Any], once: ExactlyOnce | None = None
) -> Callable[[beam.Pipeline], Any]:
    """Write elements, each in the window of its number; keep the dead letters with theirs."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        timed = (
            p
            | beam.Create(list(enumerate(elements)), reshuffle=False)
            | beam.MapTuple(lambda number, element: TimestampedValue(element, number * 10))
            | beam.WindowInto(FixedWindows(10))
        )
        good, bad = timed | sink(once).with_exception_handling()
        failures = bad | beam.Map(
            lambda pair, window=beam.DoFn.WindowParam: (pair[0], pair[1], int(window.start))
        )
        return {"good": good, "bad": failures}

    return build


@pytest.mark.parametrize("streaming", [[], ["--streaming"]])
@pytest.mark.parametrize(
    ("once", "guarantee"),
    [
        pytest.param(None, ONCE, id="at least once"),
        pytest.param(ExactlyOnce(2, "group"), ONCE, id="exactly once"),
        pytest.param(ExactlyOnce(2, "group"), AT_LEAST_ONCE, id="no longer exactly once"),
    ],
)
def test_what_cannot_be_a_record(
    kafka: Kafka,
    once: ExactlyOnce | None,
    guarantee: str,
    streaming: list[str],
) -> None:
    flags = [f"--delivery_guarantee={guarantee}", *streaming]
    found = harvest_here(rejecting(ELEMENTS, once), *flags)
    assert sorted(kafka.values("sink")) == [b"1", b"2", b"5"]
    assert found["good"] == []
    elements = {repr(element): (failure, start) for element, failure, start in found["bad"]}
    assert elements.keys() == {*REFUSED, repr(ELEMENTS[6])}
    failure, start = elements["(b'b', 7)"]
    kind, text, lines = failure
    assert kind is AttributeError
    assert text == repr(AttributeError("'int' object has no attribute 'encode'"))
    assert lines[0].startswith("Traceback")
    assert "in encoded" in "".join(lines)
    assert start == 10, "the window of the element"
    assert elements["'no pair'"][0][0] is KafkaAccessError


@pytest.mark.parametrize("once", [None, ExactlyOnce(2, "group")])
def test_what_only_brokers_refuse(kafka: Kafka, once: ExactlyOnce | None) -> None:
    """They refuse a request with all its records, of which one is too large."""
    kafka.limits["sink"] = 80  # with what is in front of the records of a request
    elements = [(b"a", "1"), (b"b", "x" * 50), (b"c", "2")]
    found = harvest_here(rejecting(elements, once), "--delivery_guarantee=exactly_once")
    assert sorted(kafka.values("sink")) == [b"1", b"2"]
    ((element, (kind, text, _), start),) = found["bad"]
    assert (element, start) == (elements[1], 10)
    assert kind is KafkaAccessError
    assert ("increase message.max.bytes" if once is None else "of the topic is 80") in text


def test_brokers_do_not_tell_the_limit_of_a_topic(
    kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    """Then no element is a dead letter for that."""
    kafka.tells_limits = False
    found = harvest_here(rejecting([(b"a", "1")], ExactlyOnce(2, "group")))
    assert (kafka.values("sink"), found["bad"]) == ([b"1"], [])
    assert "brokers do not tell max.message.bytes" in caplog.text


def test_refused_records_do_not_pile_up_in_a_bundle(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are settled while the bundle continues, and keep their windows."""
    monkeypatch.setattr(write, "_MAX_REFUSED_BYTES", 10_000)
    kafka.limits["sink"] = 80
    count, most_waiting = 3000, 0
    settled = write.SendOrReject._settled

    def settles(step: write.SendOrReject) -> Iterator[Any]:
        nonlocal most_waiting
        most_waiting = max(most_waiting, step._refused_bytes)
        return settled(step)

    monkeypatch.setattr(write.SendOrReject, "_settled", settles)
    elements = [(b"%d" % number, "x" * 50) for number in range(count)]
    found = harvest_here(rejecting([*elements, (b"good", "1")]))
    assert kafka.values("sink") == [b"1"]
    starts = {element[0]: start for element, _, start in found["bad"]}
    assert starts == {b"%d" % number: number * 10 for number in range(count)}
    assert most_waiting < 100 * (count // 2)


@pytest.mark.parametrize("rejects", [False, True])
def test_an_element_of_several_windows_is_written_once(kafka: Kafka, *, rejects: bool) -> None:
    """Its dead letter is in all of its windows, whether a producer or a broker refuses it."""
    kafka.limits["sink"] = 80

    def build(p: beam.Pipeline) -> dict[str, Any]:
        elements: list[Any] = (
            [(b"a", "1")] if not rejects else [(b"a", "1"), (b"b", 7), (b"c", "x" * 50)]
        )
        timed = (
            p
            | beam.Create(elements, reshuffle=False)
            | beam.Map(lambda element: TimestampedValue(element, 0))
            | beam.WindowInto(SlidingWindows(20, 10))
        )
        if not rejects:
            return {"good": timed | sink()}
        good, bad = timed | sink().with_exception_handling()
        starts = bad | beam.Map(
            lambda letter, window=beam.DoFn.WindowParam: (letter[0][0], int(window.start))
        )
        return {"good": good, "bad": starts}

    found = harvest_here(build)
    assert kafka.values("sink") == [b"1"]
    if rejects:
        assert sorted(found["bad"]) == [(b"b", -10), (b"b", 0), (b"c", -10), (b"c", 0)]


@pytest.mark.parametrize("rejects", [False, True])
def test_in_transactions_it_is_written_once_for_each_window(kafka: Kafka, *, rejects: bool) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        timed = (
            p
            | beam.Create([(b"a", "1")], reshuffle=False)
            | beam.Map(lambda element: TimestampedValue(element, 0))
            | beam.WindowInto(SlidingWindows(20, 10))
        )
        once = sink(ExactlyOnce(1, "group"))
        if rejects:
            return {"good": (timed | once.with_exception_handling()).good}
        return {"good": timed | once}

    harvest_here(build)
    assert kafka.values("sink") == [b"1"] * 2


def test_beam_understands_the_type_hints(kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    beam.Pipeline() | beam.Create(ELEMENTS) | sink().with_exception_handling()
    assert not [text for text in caplog.messages if "TaggedOutput" in text]


def test_a_missing_topic_is_an_error_all_the_same(kafka: Kafka) -> None:
    kafka.missing.add("sink")
    with pytest.raises(BundleFailedError, match="create the topic first"):
        harvest_here(rejecting([(b"a", "1")]))


def test_without_it_the_first_one_is_an_error(kafka: Kafka) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        return {"good": p | beam.Create([(b"a", LARGE.decode())]) | sink()}

    with pytest.raises(BundleFailedError, match=r"increase message\.max\.bytes"):
        harvest_here(build)
