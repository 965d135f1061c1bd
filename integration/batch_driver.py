"""The program that ``test_batch_jobs_killed`` kills."""

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics

from beam_spark_runner.transforms import FullWindowPartition, Order, WriteToKafka
from beam_spark_runner.transforms.kafka import ExactlyOnce
from integration.batch_deaths import Death, Watched, watch_in_driver
from integration.pipelines import counters

KAFKA_SINK = "KAFKA_SINK"
"""The variable of the environment with configuration, topic and group, as JSON."""
ELEMENTS = 60
KEYS = 7


class _Counted(beam.DoFn):  # type: ignore[misc]
    def process(self, element: Any) -> Any:
        Metrics.counter("integration", "elements").inc()
        yield element


def sums(p: beam.Pipeline, out: Path, watched: Callable[[str], beam.PTransform]) -> None:
    """Exchanges, a side input that comes late, and a file sink."""
    pairs = p | beam.Create([(x % KEYS, x) for x in range(ELEMENTS)]) | watched("source")
    by_key = pairs | beam.CombinePerKey(sum) | beam.ParDo(_Counted()) | watched("sums")
    total = beam.pvalue.AsSingleton(by_key | beam.Values() | beam.CombineGlobally(sum))
    lines = by_key | "lines" >> beam.Map(lambda pair, of: f"{pair} of {of}", total)
    lines | watched("lines") | beam.io.WriteToText(str(out / "sums"), num_shards=2)


def drawn(p: beam.Pipeline, out: Path, watched: Callable[[str], beam.PTransform]) -> None:
    """Two readers of a random step."""
    pairs = _drawn(p, watched)
    for reader in ("one", "two"):
        _in_groups(pairs, reader, out, watched)


def partitions(p: beam.Pipeline, out: Path, watched: Callable[[str], beam.PTransform]) -> None:
    """A random step with two readers, one of which sorts full-window partitions."""
    pairs = _drawn(p, watched)
    sorted_ = pairs | FullWindowPartition().sort_partition(0, Order.ASCENDING) | watched("sorted")
    lines = sorted_ | "lines of sorted" >> beam.MapTuple(lambda key, value: str(value))
    lines | "write sorted" >> beam.io.WriteToText(str(out / "sorted"))
    _in_groups(pairs, "two", out, watched)


def to_kafka(p: beam.Pipeline, out: Path, watched: Callable[[str], beam.PTransform]) -> None:
    """Exactly-once writes of a random step; the environment has the arguments of the sink."""
    config, topic, group = json.loads(os.environ[KAFKA_SINK])
    record = beam.MapTuple(lambda key, value: (b"%d" % key, b"%d" % value[0]))
    records = _drawn(p, watched) | "records" >> record.with_output_types(tuple[bytes, bytes])
    records | WriteToKafka(config, topic, exactly_once=ExactlyOnce(3, group))


def _drawn(p: beam.Pipeline, watched: Callable[[str], beam.PTransform]) -> beam.PCollection:
    return (
        p
        | beam.Create(range(ELEMENTS))
        | beam.Reshuffle()
        | watched("source")
        | "draw" >> beam.Map(lambda x: (x % KEYS, (x, random.random())))
        | beam.ParDo(_Counted())
    )


def _in_groups(
    pairs: beam.PCollection, reader: str, out: Path, watched: Callable[[str], beam.PTransform]
) -> None:
    groups = pairs | f"group {reader}" >> beam.GroupByKey() | watched(reader)
    lines = groups | f"lines {reader}" >> beam.FlatMapTuple(lambda key, each: map(str, each))
    lines | f"write {reader}" >> beam.io.WriteToText(str(out / reader))


TO_FILES = {"sums": sums, "drawn": drawn, "partitions": partitions}
PIPELINES = {**TO_FILES, "to Kafka": to_kafka}
COUNTED = {"sums": KEYS, "drawn": ELEMENTS, "partitions": ELEMENTS, "to Kafka": ELEMENTS}
"""The committed counter of each."""


def check_lines(name: str, out: Path) -> None:
    """Check what a pipeline has written to files."""
    files = [file for file in out.rglob("*") if file.is_file()]
    lines = Counter(line for file in files for line in file.read_text().splitlines())
    if name == "sums":
        total = sum(range(ELEMENTS))
        expected = [f"({x}, {sum(range(x, ELEMENTS, KEYS))}) of {total}" for x in range(KEYS)]
        assert lines == Counter(expected)
    else:
        assert len(lines) == ELEMENTS
        assert set(lines.values()) == {2}


def main(options: Sequence[str], name: str, out: str, death: Death) -> None:
    """Run a pipeline; die, or print the committed counters."""
    watch_in_driver(death)
    pipeline = beam.Pipeline(argv=[*options])
    PIPELINES[name](pipeline, Path(out), lambda step: f"watch {step}" >> beam.ParDo(Watched()))
    result = pipeline.run()
    result.wait_until_finish()
    print(counters(result))
