"""User code in a worker pool of Beam's own, which somebody else runs (EXTERNAL)."""

import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.metrics import Metrics

from tests.harvest import harvest
from tests.spark.worker_pools import RunningPool, worker_pool
from tests.stateful import Number

pytestmark = [pytest.mark.spark, pytest.mark.grpc, pytest.mark.rare]

LARGE = 20_000_000


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[RunningPool]:
    with worker_pool(tmp_path) as running:
        yield running


class Counted(beam.DoFn):  # type: ignore[misc]
    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def setup(self) -> None:
        Path(self._folder, f"up{os.getpid()}").touch()

    def process(self, element: bytes) -> Iterator[tuple[int, int]]:
        Metrics.counter("test", "seen").inc()
        logging.getLogger("user.module").warning("of some length")
        yield len(element), os.getpid()

    def teardown(self) -> None:
        Path(self._folder, f"down{os.getpid()}").touch()


def until(condition: Callable[[], bool], limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
    return condition()


def test_a_pipeline_in_a_pool(spark_session: Any, pool: RunningPool, tmp_path: Path) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        pairs = p | beam.Create([(f"k{n % 3}", n) for n in range(12)])
        seen = (
            p
            | "sizes" >> beam.Create([1, LARGE], reshuffle=True)
            | "grow" >> beam.Map(lambda n: b"x" * n)
            | beam.Reshuffle()
            | "count" >> beam.ParDo(Counted(tmp_path))
        )
        return {
            "numbered": pairs | beam.ParDo(Number()),
            "grouped": pairs | beam.GroupByKey() | beam.MapTuple(lambda k, vs: (k, sorted(vs))),
            "lengths": seen | "lengths" >> beam.Keys(),
            "processes": seen | "processes" >> beam.Values() | beam.Distinct(),
        }

    found = harvest(spark_session, build, *pool.flags, "--environment_cache_millis=500")
    assert found["numbered"] == [(f"k{key}", n) for key in range(3) for n in range(4)]
    assert found["grouped"] == [(f"k{key}", [*range(key, 12, 3)]) for key in range(3)]
    assert found["lengths"] == [1, LARGE]
    assert found.counter("seen") == 2
    assert os.getpid() not in found["processes"]
    # Its harnesses do not send their lines.
    assert found.result.messages() == ()
    assert "of some length" in (tmp_path / "stderr").read_text()
    # Once nobody needs them, harnesses tear their DoFns down; ten seconds later they are ended.
    assert until(lambda: not pool.process.children(recursive=True), 40)
    names = {file.name for file in tmp_path.iterdir()}
    up = {name.removeprefix("up") for name in names if name.startswith("up")}
    assert {int(pid) for pid in up} >= set(found["processes"])
    assert up == {name.removeprefix("down") for name in names if name.startswith("down")}
