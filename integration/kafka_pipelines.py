"""Pipelines from and to Kafka. A separate module, which executors import."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState
from apache_beam.transforms.window import FixedWindows

from beam_spark_runner.transforms import ReadFromKafka, WriteToKafka
from beam_spark_runner.transforms.kafka import ExactlyOnce, KafkaRecord, ProducerRecord
from integration.stream_kills import Driving, die_at
from integration.waiting import wait_until

SHARDS = 3
OFTEN_S = 0.5
"""How often pipelines of tests look for new partitions."""


def numbers(first: int, last: int, partition: int = -1) -> Iterator[dict[str, Any]]:
    """Yield records whose value is a number, and the key one of ten."""
    for number in range(first, last):
        yield {"key": b"key %d" % (number % 10), "value": b"%d" % number, "partition": partition}


def numbers_in(messages: Sequence[Any]) -> list[int]:
    """Return the numbers that records have, in order."""
    return sorted(int(each.value()) for each in messages)


def numbers_to(last: int) -> list[int]:
    """Return what ``numbers_in`` finds if nothing is lost and nothing doubled."""
    return list(range(last))


def wait_while_running(result: Any, holds: Callable[[], bool], what: str) -> None:
    """Wait for what a pipeline does; raise its error if it fails meanwhile."""
    wait_until(lambda: result.state != PipelineState.RUNNING or holds(), what)
    if not holds():
        result.wait_until_finish()
        raise AssertionError(f"{what} are missing, and the pipeline is {result.state}")


def coordinates(record: KafkaRecord) -> ProducerRecord:
    """Return a record whose value has the coordinates of another one."""
    text = f"{record.partition} {record.offset} {record.timestamp} {record.timestamp_type}"
    return ProducerRecord(text.encode(), record.key, headers=record.headers, timestamp=7)


def counted_in_windows(records: beam.PCollection, seconds: int) -> beam.PCollection:
    """Count records in windows, without keys; one record for each window."""
    return (
        records
        | beam.Map(lambda pair: ("all", 1)).with_output_types(tuple[str, int])
        | beam.WindowInto(FixedWindows(seconds))
        | beam.CombinePerKey(sum)
        | beam.Map(_with_window).with_output_types(tuple[bytes, bytes])
    )


def _with_window(pair: tuple[str, int], window: Any = beam.DoFn.WindowParam) -> tuple[bytes, bytes]:
    return b"%d" % int(window.start), b"%d" % pair[1]


def copy(
    argv: Sequence[str],
    config: Mapping[str, Any],
    source: str,
    sink: str,
    moment: str,
    nth: int,
    group: str,
) -> None:
    """Copy a topic by transactions, until this process is killed.

    Args:
        argv: options.
        config: of clients.
        source: topic that is read.
        sink: topic that is written.
        moment: name of that at which the process dies; empty: at none.
        nth: how often it comes to it.
        group: of the transactions.
    """
    if moment:
        die_at(Driving[moment], nth)
    pipeline = beam.Pipeline(options=PipelineOptions([*argv]))
    (
        pipeline
        | ReadFromKafka(
            config, [source], start="earliest", dynamic_read_poll_interval_seconds=OFTEN_S
        )
        | WriteToKafka(config, sink, exactly_once=ExactlyOnce(SHARDS, group))
    )
    print(os.getpid(), flush=True)
    pipeline.run().wait_until_finish()
