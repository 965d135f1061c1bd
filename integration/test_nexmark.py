"""Beam's Nexmark queries in streaming: each gives what plain loops over the same events give."""

from pathlib import Path
from typing import Any

import pytest

from beam_spark_runner import SparkPortableRunner
from benchmarks.nexmark.checks import check, local_items_but
from benchmarks.nexmark.events import Workload
from benchmarks.nexmark.queries import QUERIES, run_query
from benchmarks.nexmark.results import read_results
from benchmarks.nexmark.source import Source

pytestmark = pytest.mark.spark

# A window of ten seconds has 1,000 events. They come out of order, but the watermark waits.
WORKLOAD = Workload(count=4_000, rate=100, disorder=100)
# So that a query takes several epochs, and the watermark advances between them.
SOURCE = Source(workload=WORKLOAD, shards=2, pause_every=500)


@pytest.fixture(scope="module")
def runner(local_session: Any) -> SparkPortableRunner:
    return SparkPortableRunner(local_session)


@pytest.mark.parametrize("query", QUERIES)
def test_query(runner: SparkPortableRunner, tmp_path: Path, query: int) -> None:
    run_query(query, runner, SOURCE, tmp_path, ["--batch_interval_millis=100"])
    results = list(read_results(tmp_path))
    assert bool(results) == (query != 10)
    assert check(query, WORKLOAD, results) == ""
    if query == 3:
        assert local_items_but(0, WORKLOAD, results) == "", "elements come before timers"
