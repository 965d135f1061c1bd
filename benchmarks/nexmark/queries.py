"""Beam's queries, with the parameters of its launcher, as pipelines that read a workload."""

import heapq
import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import apache_beam as beam
from apache_beam.options.pipeline_options import (
    PipelineOptions,
    StandardOptions,
    TypeOptions,
)
from apache_beam.testing.benchmarks.nexmark import nexmark_util

from benchmarks.nexmark.results import KeepResults
from benchmarks.nexmark.source import Source

QUERIES = range(13)
WINDOW_S = 10
PERIOD_S = 5
AUCTION_SKIP = 123
WAITING_S = 600
PARAMETERS = {
    "auction_skip": AUCTION_SKIP,
    "window_size_sec": WINDOW_S,
    "window_period_sec": PERIOD_S,
    "fanout": 5,
    "num_max_workers": 5,
    "max_log_events": 100_000,
    "occasional_delay_sec": 3,
    "max_auction_waiting_time": WAITING_S,
}
"""As in Beam's ``nexmark_launcher.py``."""


class _AverageOfLast(beam.CombineFn):  # type: ignore[misc]
    """A correct ``MovingMeanSellingPriceFn`` for query 6.

    Beam's own negates a ``Timestamp``, and raises a TypeError for each bid.
    """

    def __init__(self, count: int) -> None:
        self._count = count

    def create_accumulator(self) -> list[Any]:
        return []

    def add_input(self, bids: list[Any], bid: Any) -> list[Any]:
        return self._last([*bids, bid])

    def merge_accumulators(self, accumulators: Iterable[list[Any]]) -> list[Any]:
        return self._last([bid for bids in accumulators for bid in bids])

    def extract_output(self, bids: list[Any]) -> int:
        return int(sum(bid.price for bid in bids) / len(bids)) if bids else 0

    def _last(self, bids: list[Any]) -> list[Any]:
        return heapq.nlargest(self._count, bids, key=lambda bid: (bid.date_time, bid.price))


def run_query(number: int, runner: Any, source: Source, folder: Path, flags: list[str]) -> Any:
    """Run a query to its end, and return the pipeline's result.

    Args:
        number: The number of the query.
        runner: A Beam runner.
        source: The source of the events.
        folder: The folder for the results; see ``read_results``.
        flags: The options of the pipeline.
    """
    nexmark_util.setup_coder()
    options = PipelineOptions(flags)
    options.view_as(StandardOptions).streaming = True
    # Some queries have triggers that may finish, or drop data at the end.
    options.view_as(TypeOptions).allow_unsafe_triggers = True
    query = importlib.import_module(f"apache_beam.testing.benchmarks.nexmark.queries.query{number}")
    pipeline = beam.Pipeline(runner=runner, options=options)
    events = source.read(pipeline)
    if number == 6:
        with mock.patch.object(query, "MovingMeanSellingPriceFn", _AverageOfLast):
            results = query.load(events, PARAMETERS, options)
    else:
        results = query.load(events, PARAMETERS, options)
    results | "keep results" >> beam.ParDo(KeepResults(str(folder)))
    result = pipeline.run()
    result.wait_until_finish()
    return result
