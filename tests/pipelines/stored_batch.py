"""A batch pipeline that stores what each kind of step leaves between Spark jobs.

Its results are counters, so that it writes no files, whose paths would differ.
"""

import os
import time
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics

from tests.pipelines.recoverable import Counting, Summed

RESULTS = "results"
"""The namespace of the counters, each of which has the name of a result."""
BARRIER = "BEAM_SPARK_TESTS_BARRIER"
"""The variable with a folder, in which the last step notes that it has come, and waits."""
ARRIVED, MAY_CONTINUE = "arrived", "may continue"


def build(p: beam.Pipeline) -> None:
    """Build the pipeline: groups, a side input, user state and timers, residuals."""
    sums = (
        p
        | "numbers" >> beam.Create(range(40))
        | "pairs" >> beam.Map(lambda x: (x % 5, x))
        | beam.GroupByKey()
        | "sums" >> beam.MapTuple(lambda key, values: (key, sum(values)))
    )
    total = beam.pvalue.AsSingleton(sums | beam.Values() | beam.CombineGlobally(sum))
    shares = sums | "shares" >> beam.Map(lambda pair, of: f"share {pair} {of}", total)
    by_four = p | "pairs of four" >> beam.Create([(x % 4, x) for x in range(30)])
    ended = by_four | "ended" >> beam.ParDo(Summed())
    counted = p | "ranges" >> beam.Create([17, 8]) | beam.ParDo(Counting())
    numbers = counted | "ones" >> beam.Map(lambda x: (x, 1)) | beam.CombinePerKey(sum)
    lines = (shares, ended, numbers | "lines" >> beam.Map(str))
    keyed = lines | beam.Flatten() | "keyed" >> beam.Map(lambda line: (line, None))
    grouped = keyed | "before the end" >> beam.GroupByKey()
    _ = grouped | "count" >> beam.Map(_count)


def results(counters: Any) -> dict[str, int]:
    """Return the results, with how often each was found.

    Args:
        counters: Committed counters, as Beam's clients return them.
    """
    return {
        each.key.metric.name: each.committed
        for each in counters
        if each.key.metric.namespace == RESULTS
    }


def _count(pair: tuple[str, Any]) -> None:
    if folder := os.environ.get(BARRIER):
        Path(folder, ARRIVED).touch()
        while not Path(folder, MAY_CONTINUE).exists():
            time.sleep(0.01)
    Metrics.counter(RESULTS, pair[0]).inc()
