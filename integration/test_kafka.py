"""Topics of a real broker in and out of pipelines."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import certifi
import pytest
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner.core.errors import BundleFailedError
from beam_spark_runner.transforms import ReadFromKafka, WriteToKafka
from beam_spark_runner.transforms.kafka import CreateTime, ExactlyOnce
from integration.kafka_broker import Broker, start_broker
from integration.kafka_pipelines import (
    OFTEN_S,
    coordinates,
    counted_in_windows,
    numbers,
    numbers_in,
    numbers_to,
    wait_while_running,
)
from integration.running import run
from integration.waiting import wait_until
from tests.spark.endless import nothing_goes_on, started  # noqa: F401  (a fixture)

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("nothing_goes_on")]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with start_broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions, and one for the results, whose name is ``to_`` this one's."""
    name = "".join(each for each in request.node.name if each.isalnum())
    broker.create(f"to_{name}", 1)
    return broker.create(name, 2)


class Copied:
    """What a pipeline has copied to a topic."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._broker, self._topic = broker, f"to_{topic}"

    def numbers(self) -> list[int]:
        return numbers_in(self._broker.records(self._topic))

    def wait_for(self, result: Any, count: int) -> None:
        """Wait for so many numbers, and check that they are all there are."""
        wait_while_running(
            result, lambda: len(self._broker.records(self._topic)) >= count, f"{count} records"
        )
        assert self.numbers() == numbers_to(count)


@pytest.fixture
def copied(broker: Broker, topic: str) -> Copied:
    return Copied(broker, topic)


def test_a_backlog_is_read_by_several_tasks_and_written(
    local_session: Any, broker: Broker, topic: str, copied: Copied
) -> None:
    broker.produce(topic, numbers(0, 50_000, 0))
    broker.produce(topic, numbers(50_000, 50_010, 1))

    def build(p: beam.Pipeline) -> None:
        read = p | ReadFromKafka(broker.config, [topic], stop="latest")
        read | WriteToKafka(broker.config, f"to_{topic}")

    run(local_session, build)
    assert copied.numbers() == numbers_to(50_010)


def test_records_have_places_times_and_headers(
    local_session: Any, broker: Broker, topic: str
) -> None:
    headers = [("name", b"value"), ("name", None)]
    broker.produce(
        topic,
        (
            {"key": key, "value": b"", "partition": 1, "timestamp": n, "headers": headers}
            for n, key in ((1000, b"a"), (2000, b"b"), (3000, None), (4000, b"d"), (5000, b"e"))
        ),
    )

    def build(p: beam.Pipeline) -> None:
        read = ReadFromKafka(
            broker.config,
            topic_pattern=f"{topic[:-1]}.",
            start=Timestamp(1.5),
            stop={(topic, 0): 0, (topic, 1): 4},
            with_metadata=True,
        )
        (p | read | beam.Map(coordinates) | WriteToKafka(broker.config, f"to_{topic}"))

    run(local_session, build)
    found = broker.records(f"to_{topic}")
    values = {each.key(): each.value().decode() for each in found}
    assert values == {
        b"b": "1 1 2000 CreateTime",
        None: "1 2 3000 CreateTime",
        b"d": "1 3 4000 CreateTime",
    }
    assert all(each.headers() == headers and each.timestamp()[1] == 7 for each in found)


def test_what_transactions_have_aborted_or_left_open_is_not_read(
    local_session: Any, broker: Broker, topic: str, copied: Copied
) -> None:
    """Nor do the gaps that they leave keep a read from its end."""
    from confluent_kafka import Producer

    producer = Producer({**broker.config, "transactional.id": topic})
    producer.init_transactions()

    def transact(first: int, last: int) -> None:
        producer.begin_transaction()
        for each in numbers(first, last, 0):
            producer.produce(topic, **each)
        producer.flush()

    transact(0, 10)
    producer.commit_transaction()
    transact(100, 110)
    producer.abort_transaction()
    with contextlib.ExitStack() as open_transaction:
        transact(200, 210)
        open_transaction.callback(producer.abort_transaction)

        def build(p: beam.Pipeline) -> None:
            read = p | ReadFromKafka(broker.config, [topic], stop="latest")
            read | WriteToKafka(broker.config, f"to_{topic}")

        run(local_session, build)
    assert copied.numbers() == numbers_to(10)


def test_records_that_were_deleted_are_an_error_or_left_out(
    local_session: Any, broker: Broker, topic: str, copied: Copied
) -> None:
    from confluent_kafka import TopicPartition

    broker.produce(topic, numbers(-10, 10, 0))
    admin = broker.admin()
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 10)]).values()
    deleted.result()

    def build(p: beam.Pipeline, **more: str) -> None:
        start, stop = {(topic, 0): 3, (topic, 1): 0}, {(topic, 0): 20, (topic, 1): 0}
        read = ReadFromKafka({**broker.config, **more}, [topic], start=start, stop=stop)
        (p | read | WriteToKafka(broker.config, f"to_{topic}"))

    with pytest.raises(BundleFailedError, match="there is no offset 3; it has 10 to 19") as raised:
        run(local_session, build)
    assert raised.value.step.startswith(f"ReadFromKafka({topic})")
    assert "auto.offset.reset=earliest in consumer_config" in str(raised.value)
    run(local_session, lambda p: build(p, **{"auto.offset.reset": "earliest"}))
    assert copied.numbers() == numbers_to(10)


def test_windows_close_though_a_partition_is_idle_and_another_is_added(
    local_session: Any, broker: Broker
) -> None:
    topic = broker.create("windows", 2, message_timestamp_type="LogAppendTime")
    sink = broker.create("to_windows", 1)

    def build(p: beam.Pipeline) -> None:
        read = p | ReadFromKafka(
            broker.config,
            [topic],
            start="earliest",
            timestamp_policy="LogAppendTime",
            dynamic_read_poll_interval_seconds=OFTEN_S,
        )
        counted_in_windows(read, 1) | WriteToKafka(broker.config, sink)

    result = started(local_session, build)

    def wait_for(count: int, what: str) -> None:
        wait_while_running(
            result, lambda: sum(numbers_in(broker.records(sink))) == count, f"windows of {what}"
        )

    # Of the two partitions, one gets nothing.
    broker.produce(topic, numbers(0, 100, 0))
    wait_for(100, "a partition")
    broker.add_partitions(topic, 3)
    broker.produce(topic, numbers(0, 50, 2))
    wait_for(150, "a new partition")


def test_windows_close_though_a_topic_is_deleted(local_session: Any, broker: Broker) -> None:
    for name in ("deleted-a", "deleted-b"):
        broker.create(name, 1, message_timestamp_type="LogAppendTime")
    sink = broker.create("to_deleted", 1)

    def build(p: beam.Pipeline) -> None:
        read = p | ReadFromKafka(
            broker.config,
            topic_pattern="deleted-.*",
            start="earliest",
            timestamp_policy="LogAppendTime",
            dynamic_read_poll_interval_seconds=OFTEN_S,
        )
        counted_in_windows(read, 1) | WriteToKafka(broker.config, sink)

    def wait_for(count: int, what: str) -> None:
        wait_while_running(
            result, lambda: sum(numbers_in(broker.records(sink))) == count, f"windows {what}"
        )

    for name in ("deleted-a", "deleted-b"):
        broker.produce(name, numbers(0, 10, 0))
    result = started(local_session, build)
    wait_for(20, "of both")
    admin = broker.admin()  # which must live as long as its answers
    admin.delete_topics(["deleted-b"])["deleted-b"].result(60)
    broker.produce("deleted-a", numbers(10, 30, 0))
    wait_for(40, "after one was deleted")


def test_a_stream_commits_what_it_has_read_and_continues_there(
    local_session: Any, broker: Broker, topic: str, copied: Copied
) -> None:
    config = {**broker.config, "group.id": topic, "auto.offset.reset": "earliest"}

    def build(p: beam.Pipeline) -> None:
        read = p | ReadFromKafka(config, [topic], commit_offset_in_finalize=True)
        read | WriteToKafka(broker.config, f"to_{topic}")

    broker.produce(topic, numbers(0, 10, 0))
    broker.produce(topic, numbers(10, 15, 1))
    first = started(local_session, build)
    copied.wait_for(first, 15)
    wait_until(lambda: broker.committed(topic, topic, 2) == [10, 5], "offsets are committed")
    first.drain()
    assert first.wait_until_finish() == "DRAINED"
    # Without a checkpoint, the group says where it continues.
    broker.produce(topic, numbers(15, 20, 1))
    second = started(local_session, build)
    copied.wait_for(second, 20)


def test_a_stream_outlives_its_broker_and_continues_from_its_checkpoint(
    local_session: Any, broker: Broker, topic: str, copied: Copied, tmp_path: Path
) -> None:
    late = f"{topic}late"

    def build(p: beam.Pipeline) -> None:
        read = p | ReadFromKafka(
            broker.config,
            [topic, late],
            start="earliest",
            timestamp_policy=CreateTime(1),
            dynamic_read_poll_interval_seconds=OFTEN_S,
        )
        read | WriteToKafka(broker.config, f"to_{topic}")

    flag = f"--checkpoint_dir={tmp_path}"
    first = started(local_session, build, flag)
    broker.produce(topic, numbers(0, 20))
    copied.wait_for(first, 20)
    broker.kill()
    broker.start()
    broker.produce(topic, numbers(20, 30))
    copied.wait_for(first, 30)
    # A topic that was not there when the stream started.
    broker.create(late, 1)
    broker.produce(late, numbers(30, 40))
    copied.wait_for(first, 40)
    epochs = sorted(path.name for path in tmp_path.rglob("*.manifest"))
    wait_until(
        lambda: min(path.name for path in tmp_path.rglob("*.manifest")) > epochs[-1],
        "what was written is committed",
    )
    first.cancel()
    broker.produce(late, numbers(40, 50))
    second = started(local_session, build, flag)
    copied.wait_for(second, 50)


def test_secured_brokers(local_session: Any, broker: Broker, topic: str, copied: Copied) -> None:
    broker.produce(topic, numbers(0, 10))

    def build(p: beam.Pipeline, exactly_once: ExactlyOnce | None) -> None:
        read = p | ReadFromKafka(broker.secured_config, [topic], stop="latest")
        read | WriteToKafka(broker.secured_config, f"to_{topic}", exactly_once=exactly_once)

    run(local_session, lambda p: build(p, None))
    assert copied.numbers() == numbers_to(10)
    run(local_session, lambda p: build(p, ExactlyOnce(1, "secured")))
    assert copied.numbers() == sorted(2 * numbers_to(10))


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        pytest.param({"sasl.password": "wrong"}, "Authentication failed", id="password"),
        pytest.param(
            {"ssl.ca.location": certifi.where()}, "certificate verify failed", id="certificate"
        ),
    ],
)
def test_brokers_that_refuse_a_client(
    local_session: Any, broker: Broker, topic: str, config: dict[str, str], problem: str
) -> None:
    def build(p: beam.Pipeline) -> None:
        p | ReadFromKafka({**broker.secured_config, **config}, [topic], stop="latest")

    with pytest.raises(BundleFailedError, match=problem) as raised:
        run(local_session, build)
    assert "Check security.protocol, sasl.* and ssl.*" in str(raised.value)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        pytest.param({"no.such.setting": "1"}, "No such configuration property", id="setting"),
        pytest.param({}, "there is no missing: create the topics first", id="topic"),
    ],
)
def test_what_is_not_there_is_named(
    local_session: Any, broker: Broker, config: dict[str, str], problem: str
) -> None:
    def build(p: beam.Pipeline) -> None:
        p | ReadFromKafka({**broker.config, **config}, ["missing"], stop="latest")

    with pytest.raises(BundleFailedError, match=rf"ReadFromKafka\(missing\): .*{problem}"):
        run(local_session, build)


def test_records_that_cannot_be_written_fail_their_step(
    local_session: Any, broker: Broker, topic: str
) -> None:
    def build(p: beam.Pipeline) -> None:
        config = {**broker.config, "message.max.bytes": 10_000_000}
        p | beam.Create([(b"k", b"v" * 2_000_000)]) | WriteToKafka(config, f"to_{topic}")

    with pytest.raises(BundleFailedError, match=rf"a record for topic to_{topic} .*") as raised:
        run(local_session, build)
    assert raised.value.step == f"WriteToKafka(to_{topic})"
    assert "increase message.max.bytes in producer_config, and max.message.bytes" in str(
        raised.value
    )
