"""What ``ReadFromKafka`` and ``WriteToKafka`` take, and what they refuse."""

import subprocess
import sys
from typing import Any

import pytest
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner.transforms import ReadFromKafka, WriteToKafka
from beam_spark_runner.transforms.kafka import ExactlyOnce, KafkaAccessError
from beam_spark_runner.transforms.kafka.config import (
    of_inquiries,
    of_partition_readers,
    offset_reset,
    producer_config,
)
from beam_spark_runner.transforms.kafka.positions import Position

SERVERS = {"bootstrap.servers": "broker:9092"}


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({}, "bootstrap.servers is missing"),
        ({**SERVERS, "sasl.jaas.config": "x"}, "sasl.jaas.config .* use sasl.mechanism with"),
        ({**SERVERS, "ssl.truststore.location": "x"}, "use ssl.ca.location, with a PEM file"),
        ({**SERVERS, "key.deserializer": "x"}, "use the argument key_deserializer"),
        ({**SERVERS, "enable.auto.commit": True}, "commit_offset_in_finalize=True commits"),
        ({**SERVERS, "auto.offset.reset": "none of them"}, "may be earliest, latest or error"),
        (
            {"max.poll.records": 1, "fetch.max.wait.ms": 1},
            "max.poll.records .*; fetch.max.wait.ms .*; bootstrap.servers is missing",
        ),
    ],
)
def test_settings_that_cannot_be_used_are_refused_with_what_can(
    config: dict[str, Any], problem: str
) -> None:
    with pytest.raises(KafkaAccessError, match=rf"ReadFromKafka\(orders\): .*{problem}"):
        ReadFromKafka(config, ["orders"])


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "either topics or topic_pattern"),
        ({"topics": ["a"], "topic_pattern": "b"}, "either topics or topic_pattern"),
        ({"topics": ["a"], "max_num_records": 5}, "max_num_records: use stop"),
        ({"topics": ["a"], "redistribute": True}, r"use beam.Reshuffle\(\)"),
        ({"topics": ["a"], "start": "somewhere"}, "may be earliest, latest, committed"),
        ({"topics": ["a"], "start": {("a", "0"): 1}}, r"dict of \(topic, partition\)"),
        ({"topics": ["a"], "start": {("a", 0): -1}}, r"dict of \(topic, partition\)"),
        ({"topics": ["a"], "start": {}}, r"start is \{\}; it may be earliest, latest, committed"),
        ({"topics": ["a"], "stop": "earliest"}, "stop is 'earliest'; it may be latest"),
        ({"topics": ["a"], "start": "latest", "start_read_time": 5}, "either start or start_read"),
        ({"topics": ["a"], "start": "committed"}, "needs a group.id"),
        ({"topics": ["a"], "commit_offset_in_finalize": True}, "needs a group.id"),
        ({"topics": ["a"], "key_deserializer": "org.apache.Bytes"}, "functions of bytes"),
        (
            {"topics": ["a"], "with_metadata": True, "value_deserializer": bytes.decode},
            "deserialize them in a step after it",
        ),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(KafkaAccessError, match=problem):
        ReadFromKafka(SERVERS, **arguments)


def test_no_offset_at_all_is_no_start_for_a_group_either() -> None:
    with pytest.raises(KafkaAccessError, match=r"start is \{\}; it may be earliest"):
        ReadFromKafka({**SERVERS, "group.id": "g"}, ["a"], start={})


def test_unknown_arguments_are_errors_of_the_program() -> None:
    with pytest.raises(TypeError, match="ReadFromKafka has no argument topc"):
        ReadFromKafka(SERVERS, topc="a")
    with pytest.raises(TypeError, match="WriteToKafka has no argument topc"):
        WriteToKafka(SERVERS, topc="a")


GROUP = {**SERVERS, "group.id": "g"}


@pytest.mark.parametrize(
    ("config", "arguments", "start"),
    [
        (SERVERS, {}, Position("latest")),
        (SERVERS, {"stop": "latest"}, Position("earliest")),
        ({**SERVERS, "auto.offset.reset": "smallest"}, {}, Position("earliest")),
        (GROUP, {}, Position("committed", reset="latest")),
        ({**GROUP, "auto.offset.reset": "earliest"}, {}, Position("committed", reset="earliest")),
        (GROUP, {"stop": "latest"}, Position("committed", reset="earliest")),
        (SERVERS, {"start_read_time": 1500}, Position(time_ms=1500)),
        (SERVERS, {"start": Timestamp(1.0005)}, Position(time_ms=1001)),
        (SERVERS, {"start": {("a", 0): 7}}, Position(offsets={("a", 0): 7})),
    ],
)
def test_where_reading_starts(
    config: dict[str, Any], arguments: dict[str, Any], start: Position
) -> None:
    assert ReadFromKafka(config, ["a"], **arguments)._sought.start == start


def test_readers_of_partitions_commit_nothing_and_reset_nothing() -> None:
    config = of_partition_readers({**GROUP, "auto.offset.reset": "latest", "fetch.min.bytes": 5})
    assert config["auto.offset.reset"] == "error"
    assert config["enable.auto.commit"] is False
    assert (config["group.id"], config["fetch.min.bytes"]) == ("g", 5)


def test_clients_for_queries_log_only_what_users_ask_for() -> None:
    assert of_inquiries(SERVERS)["log_level"] == 2
    assert of_inquiries({**SERVERS, "log_level": 6})["log_level"] == 6
    assert "log_level" not in of_inquiries({**SERVERS, "debug": "broker"})


def test_resets_have_several_spellings() -> None:
    spellings = {"beginning": "earliest", "largest": "latest", "none": "error"}
    for spelling, word in spellings.items():
        assert offset_reset({"auto.offset.reset": spelling}, "r") == word
    assert offset_reset({}, "r") is None


def test_producers_choose_partitions_as_javas_do() -> None:
    assert producer_config(SERVERS, "w")["partitioner"] == "murmur2_random"
    mine = {**SERVERS, "partitioner": "consistent", "enable.idempotence": False}
    assert producer_config(mine, "w") == mine


@pytest.mark.parametrize(
    ("config", "arguments", "problem"),
    [
        ({**SERVERS, "transactional.id": "x"}, {}, "exactly_once=ExactlyOnce"),
        ({**SERVERS, "delivery.timeout.ms": 1}, {}, "use message.timeout.ms"),
        (SERVERS, {"with_headers": True}, "use ProducerRecord elements"),
        (SERVERS, {"value_serializer": "org.apache.Bytes"}, "functions that return bytes"),
        (SERVERS, {"exactly_once": ExactlyOnce(0, "x")}, "at least one shard"),
        (SERVERS, {"exactly_once": ExactlyOnce(1, "")}, "a sink_group_id"),
        (
            {**SERVERS, "message.max.bytes": "many"},
            {"exactly_once": ExactlyOnce(1, "x")},
            "message.max.bytes is 'many', but must be a whole number",
        ),
    ],
)
def test_what_cannot_be_written(
    config: dict[str, Any], arguments: dict[str, Any], problem: str
) -> None:
    with pytest.raises(KafkaAccessError, match=rf"WriteToKafka\(a\): .*{problem}"):
        WriteToKafka(config, "a", **arguments)


def test_topics_that_cannot_be_are_refused() -> None:
    for topic in ("", "a b"):
        with pytest.raises(KafkaAccessError, match=f"a topic is '{topic}', but must be a text"):
            WriteToKafka(SERVERS, topic)


@pytest.mark.parametrize(
    ("more", "most"),
    [({}, 1_000_000), ({"message.max.bytes": 2000}, 2000), ({"message.max.bytes": "2000"}, 2000)],
)
def test_only_exactly_once_needs_to_know_beforehand_how_long_records_may_be(
    more: dict[str, Any], most: int
) -> None:
    once = ExactlyOnce(1, "x")
    config = {**SERVERS, **more}
    assert WriteToKafka(config, "a", exactly_once=once)._conversion.most_bytes == most
    assert WriteToKafka(config, "a")._conversion.most_bytes is None


def test_transactions_need_a_topic() -> None:
    with pytest.raises(KafkaAccessError, match="exactly_once needs a topic"):
        WriteToKafka(SERVERS, exactly_once=ExactlyOnce(1, "x"))


def test_transforms_import_neither_spark_nor_kafka() -> None:
    code = """
import sys
import beam_spark_runner.transforms
assert "pyspark" not in sys.modules and "confluent_kafka" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_package_is_named_with_its_extra() -> None:
    code = """
import sys
sys.modules["confluent_kafka"] = None
import apache_beam as beam
from beam_spark_runner.transforms import ReadFromKafka
try:
    beam.Pipeline() | ReadFromKafka({"bootstrap.servers": "b:1"}, ["a"])
except Exception as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "confluent-kafka is missing here" in done.stdout
    assert "pip install 'confluent-kafka>=2.4'" in done.stdout
