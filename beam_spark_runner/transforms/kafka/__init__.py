"""Transforms that read and write Kafka topics with ``confluent-kafka``."""

from beam_spark_runner.transforms.kafka.errors import KafkaAccessError
from beam_spark_runner.transforms.kafka.exactly_once import ExactlyOnce
from beam_spark_runner.transforms.kafka.read import ReadFromKafka
from beam_spark_runner.transforms.kafka.records import KafkaHeader, KafkaRecord, ProducerRecord
from beam_spark_runner.transforms.kafka.timestamps import (
    CreateTime,
    EventTime,
    LogAppendTime,
    ProcessingTime,
)
from beam_spark_runner.transforms.kafka.write import WriteToKafka

__all__ = [
    "CreateTime",
    "EventTime",
    "ExactlyOnce",
    "KafkaAccessError",
    "KafkaHeader",
    "KafkaRecord",
    "LogAppendTime",
    "ProcessingTime",
    "ProducerRecord",
    "ReadFromKafka",
    "WriteToKafka",
]
