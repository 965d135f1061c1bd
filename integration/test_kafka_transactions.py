"""What ``WriteToKafka(exactly_once=…)`` leaves in a topic, whatever is killed in between."""

import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from beam_spark_runner.core.errors import BundleFailedError
from beam_spark_runner.transforms import WriteToKafka
from beam_spark_runner.transforms.kafka import ExactlyOnce, KafkaAccessError, error_names
from beam_spark_runner.transforms.kafka.config import producer_config
from beam_spark_runner.transforms.kafka.outgoing import Outgoing, size_alone
from beam_spark_runner.transforms.kafka.transactions import Batch, ShardTakenError, ShardWriter
from integration.kafka_broker import Broker, start_broker
from integration.kafka_pipelines import SHARDS, numbers, numbers_in, numbers_to
from integration.running import run
from integration.stream_kills import Driving
from integration.waiting import newest_epoch, wait_until
from tests.cli.programs import Program
from tests.harvest import harvest

pytestmark = pytest.mark.timeout(900)

MOMENTS = [Driving.RAN, Driving.WRITTEN, Driving.COMMITTED, None]
"""At which drivers die. The first is the one at which Kafka has what no epoch has committed."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with start_broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


class Runs:
    """One pipeline that copies a topic, and the runs of it."""

    def __init__(self, broker: Broker, folder: Path, source: str, sink: str) -> None:
        self._broker, self._folder, self._source, self._sink = broker, folder, source, sink
        self.checkpoints = folder / "checkpoints"
        self._count = 0

    def start(
        self,
        moment: str = "",
        nth: int = 0,
        group: str = "copy",
        guarantee: str = "exactly_once",
    ) -> Program:
        self._count += 1
        folder = self._folder / f"run-{self._count}"
        folder.mkdir()
        arguments = self._broker.config, self._source, self._sink, moment, nth, group
        return Program(
            folder,
            f"from integration.kafka_pipelines import copy\ncopy(OPTIONS, *{arguments!r})",
            "--spark_master_url=local[2]",
            "--batch_interval_millis=100",
            f"--delivery_guarantee={guarantee}",
            f"--parallelism={1 + self._count % 3}",
            f"--checkpoint_dir={self.checkpoints}",
        )


def test_nothing_is_lost_or_doubled(broker: Broker, tmp_path: Path) -> None:
    """Drivers are killed, the broker is, and partitions are added."""
    source, sink = broker.create("source", 2), broker.create("sink", 3)
    chance = random.Random(7)
    runs = Runs(broker, tmp_path, source, sink)
    produced = 0

    def produce(count: int) -> None:
        nonlocal produced
        broker.produce(source, numbers(produced, produced + count))
        produced += count

    def written() -> int:
        return len(broker.records(sink))

    for turn, moment in enumerate(MOMENTS):
        produce(3000)
        program = runs.start("" if moment is None else moment.name, chance.randrange(2, 5))
        until = newest_epoch(runs.checkpoints) + 3
        assert program.wait_until(lambda until=until: newest_epoch(runs.checkpoints) >= until) or (  # type: ignore[misc]
            moment is not None
        )
        if turn == 1:
            broker.kill()
            broker.start()
        if turn == 2:
            broker.add_partitions(source, 4)
        produce(1000)
        if moment is None:
            time.sleep(chance.random())  # the moment is chance's
            program.send(signal.SIGKILL)
        ended = program.end(300)
        assert ended.code == -signal.SIGKILL, ended.err
        assert numbers_in(broker.records(sink)) == sorted(set(numbers_in(broker.records(sink))))
    program = runs.start()
    program.wait_until(lambda: written() >= produced)
    assert numbers_in(broker.records(sink)) == numbers_to(produced)
    produce(10)
    program.wait_until(lambda: written() >= produced)
    assert numbers_in(broker.records(sink)) == numbers_to(produced)
    program.send(signal.SIGKILL)
    program.end(300)


def test_at_least_once_loses_nothing(broker: Broker, tmp_path: Path) -> None:
    """Drivers are killed, and the next one has the other guarantee."""
    source, sink = broker.create("from", 2), broker.create("to", 3)
    runs = Runs(broker, tmp_path, source, sink)
    of_turns = [*MOMENTS[:3], *MOMENTS[:2]]
    produced, in_doubt = 0, set[int]()
    for turn, moment in enumerate(of_turns):
        assert moment is not None
        broker.produce(source, numbers(produced, produced + 500))
        produced += 500
        before = {*numbers_in(broker.records(sink))}
        guarantee = ("at_least_once", "exactly_once")[turn % 2]
        ended = runs.start(moment.name, 2, guarantee=guarantee).end(300)
        assert ended.code == -signal.SIGKILL, ended.err
        if guarantee == "at_least_once":
            in_doubt |= {*numbers_in(broker.records(sink))} - before
    program = runs.start()
    assert program.wait_until(lambda: len({*numbers_in(broker.records(sink))}) >= produced)
    program.send(signal.SIGKILL)
    program.end(300)
    times = Counter(numbers_in(broker.records(sink)))
    assert sorted(times) == numbers_to(produced)
    assert max(times.values()) <= 2
    assert {number for number, count in times.items() if count > 1} <= in_doubt


@pytest.mark.parametrize("once", [None, ExactlyOnce(2, "small")])
def test_what_the_broker_refuses_is_a_dead_letter(broker: Broker, once: ExactlyOnce | None) -> None:
    """It refuses a request with all its records; the others are written all the same."""
    limit = 2000
    sink = broker.create(f"small-{once is None}", 1, max_message_bytes=limit)
    # At the limit itself, the size of a request of one record decides.
    largest = b"x" * (limit - size_alone(("", None, None, b"x" * limit, None, [])) + limit)
    values = [b"%d" % number if number % 50 else b"%d " % number * 1500 for number in range(200)]
    values += [largest, largest + b"x"]

    def build(p: beam.Pipeline) -> dict[str, Any]:
        records = p | beam.Create([(None, value) for value in values], reshuffle=False)
        small = WriteToKafka(broker.config, sink, exactly_once=once).with_exception_handling()
        _, bad = records | small
        return {"bad": bad | beam.Map(lambda pair: pair[0][1])}

    found = harvest(None, build, "--spark_master_url=local[1]")  # type: ignore[arg-type]
    assert sorted(found["bad"]) == sorted(value for value in values if len(value) > len(largest))
    written = [message.value() for message in broker.records(sink)]
    assert sorted(written) == sorted(value for value in values if len(value) <= len(largest))


def test_an_older_checkpoint_needs_another_group(broker: Broker, tmp_path: Path) -> None:
    source, sink = broker.create("before", 2), broker.create("after", 2)
    runs = Runs(broker, tmp_path, source, sink)

    def copied(first: int, last: int, group: str) -> set[int]:
        """Run the pipeline until it has copied some numbers; return all that it has copied."""
        broker.produce(source, numbers(first, last))
        program = runs.start(group=group)
        wanted = {*range(first, last)}
        assert program.wait_until(lambda: wanted <= {*numbers_in(broker.records(sink))})
        program.send(signal.SIGKILL)
        program.end(300)
        return {*numbers_in(broker.records(sink))}

    copied(0, 100, "copy")
    older = shutil.copytree(runs.checkpoints, tmp_path / "older")
    copied(100, 200, "copy")
    assert numbers_in(broker.records(sink)) == numbers_to(200)
    shutil.rmtree(runs.checkpoints)
    older.rename(runs.checkpoints)
    ended = runs.start(group="copy").end(300)
    assert ended.code == 1
    assert "older than what it has written. Continue with another sink_group_id" in ended.err
    assert copied(200, 250, "another") == {*range(250)}
    # Those that were committed before the checkpoint are not written again, except its last epoch.
    assert max(Counter(numbers_in(broker.records(sink))).values()) == 2


class Shards:
    """Writers of one shard."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._broker, self._topic = broker, topic
        self._config = producer_config(broker.config, "w")

    def open(self) -> ShardWriter:
        return ShardWriter(self._config, "w", self._topic, f"{self._topic}-0")

    def batch(self, first: int, last: int, *, group: str = "g", writer: str = "me") -> Batch:
        records: list[Outgoing] = [
            (self._topic, None, None, b"%d" % number, None, []) for number in range(first, last)
        ]
        return Batch(writer, group, first, records)

    def numbers(self) -> list[int]:
        return numbers_in(self._broker.records(self._topic))


@pytest.fixture
def shards(broker: Broker, request: pytest.FixtureRequest) -> Shards:
    return Shards(broker, broker.create(request.node.name, 2))


def test_batches_are_written_once_whoever_writes_them(shards: Shards) -> None:
    batches = [shards.batch(0, 5), shards.batch(5, 8)]
    first = shards.open()
    first.write(batches)
    first.write(batches)
    # Another process does the same, as the epoch is not committed.
    second = shards.open()
    assert second.next_number == 8
    second.write([*batches, shards.batch(8, 10)])
    assert shards.numbers() == numbers_to(10)
    # The one before it wakes up.
    with pytest.raises(ShardTakenError):
        first.write([shards.batch(8, 11)])
    assert shards.numbers() == numbers_to(10)
    second.write([shards.batch(10, 12, group="h")])
    assert shards.numbers() == numbers_to(12)


def test_a_transaction_of_a_dead_process_is_aborted(shards: Shards, broker: Broker) -> None:
    from confluent_kafka import Producer

    topic = "test_a_transaction_of_a_dead_process_is_aborted"
    dead = Producer({**broker.config, "transactional.id": f"{topic}-0"})
    dead.init_transactions()
    dead.begin_transaction()
    dead.produce(topic, b"0")
    dead.flush()
    writer = shards.open()
    writer.write([shards.batch(0, 3)])
    assert shards.numbers() == numbers_to(3)
    assert len(broker.records(topic, is_committed=False)) == 4


def test_groups_of_others_are_refused(shards: Shards) -> None:
    shards.open().write([shards.batch(0, 3)])
    with pytest.raises(KafkaAccessError, match="is that of another pipeline"):
        shards.open().write([shards.batch(0, 3, writer="other")])
    with pytest.raises(KafkaAccessError, match="older than what it has written"):
        shards.open().write([shards.batch(0, 3, group="other")])
    assert shards.numbers() == numbers_to(3)


@pytest.mark.spark
def test_a_batch_is_written_once_and_a_second_run_is_refused(
    local_session: Any, broker: Broker
) -> None:
    sink = broker.create("batch", 2)

    def build(p: beam.Pipeline) -> None:
        pairs = p | beam.Create([(str(n % 7), str(n)) for n in range(5000)])
        pairs | WriteToKafka(
            broker.config,
            sink,
            key_serializer=str.encode,
            value_serializer=str.encode,
            exactly_once=ExactlyOnce(SHARDS, "batch-1"),
        )

    run(local_session, build)
    assert numbers_in(broker.records(sink)) == numbers_to(5000)
    with pytest.raises(BundleFailedError, match="choose another sink_group_id") as raised:
        run(local_session, build)
    assert raised.value.step == "WriteToKafka(batch)"
    assert numbers_in(broker.records(sink)) == numbers_to(5000)


def test_topics_that_are_missing_are_named(broker: Broker) -> None:
    config = producer_config({**broker.config, "message.timeout.ms": 2000}, "w")
    broker.create("there", 1)
    writer = ShardWriter(config, "w", "there", "names-0")
    record: Outgoing = ("not there", None, None, b"", None, [])
    with pytest.raises(KafkaAccessError, match="a record for topic not there was not written"):
        writer.write([Batch("me", "g", 0, [record])])
    wait_until(lambda: broker.records("there", is_committed=False) == [], "nothing")


def test_errors_have_the_names_by_which_they_are_known() -> None:
    from confluent_kafka import KafkaError

    known = {KafkaError(code).name() for code in vars(KafkaError).values() if isinstance(code, int)}
    names = {
        *(error_names.END_OF_PARTITION, error_names.UNKNOWN_PARTITION),
        *(error_names.NO_ACCESS_TO_GROUP, *error_names.OUT_OF_RANGE, *error_names.REFUSED),
        *(*error_names.TAKEN, *error_names.NO_TOPIC, *error_names.PASSING, *error_names.ADVICE),
    }
    assert names <= known
