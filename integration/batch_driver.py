"""The program that ``test_batch_jobs_killed`` kills."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics

from integration.batch_deaths import Death, Watched, watch_in_driver
from integration.pipelines import counters

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
    pairs = (
        p
        | beam.Create(range(ELEMENTS))
        | beam.Reshuffle()
        | watched("source")
        | "draw" >> beam.Map(lambda x: (x % KEYS, (x, random.random())))
        | beam.ParDo(_Counted())
    )
    for reader in ("one", "two"):
        groups = pairs | f"group {reader}" >> beam.GroupByKey() | watched(reader)
        lines = groups | f"lines {reader}" >> beam.FlatMapTuple(lambda key, each: map(str, each))
        lines | f"write {reader}" >> beam.io.WriteToText(str(out / reader))


PIPELINES = {"sums": sums, "drawn": drawn}


def main(options: Sequence[str], name: str, out: str, death: Death) -> None:
    """Run a pipeline; die, or print the committed counters."""
    watch_in_driver(death)
    pipeline = beam.Pipeline(argv=[*options])
    PIPELINES[name](pipeline, Path(out), lambda step: f"watch {step}" >> beam.ParDo(Watched()))
    result = pipeline.run()
    result.wait_until_finish()
    print(counters(result))
