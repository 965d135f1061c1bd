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


def check_query(runner: SparkPortableRunner, query: int, folder: Path, *flags: str) -> None:
    run_query(query, runner, SOURCE, folder, ["--batch_interval_millis=100", *flags])
    results = list(read_results(folder))
    assert bool(results) == (query != 10)
    assert check(query, WORKLOAD, results) == ""
    if query == 3:
        assert local_items_but(0, WORKLOAD, results) == "", "elements come before timers"


@pytest.mark.parametrize("query", QUERIES)
def test_query(runner: SparkPortableRunner, tmp_path: Path, query: int) -> None:
    check_query(runner, query, tmp_path)


def test_windows_of_user_code_in_sdk_harnesses(runner: SparkPortableRunner, tmp_path: Path) -> None:
    check_query(runner, 6, tmp_path, "--environment_type=PROCESS", "--environment_config={}")
