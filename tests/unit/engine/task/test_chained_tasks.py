"""All tasks of an epoch in one, without Spark."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.window import FixedWindows

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core import routing
from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.engine.program import LevelProgram
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.reports import reports_of
from beam_spark_runner.engine.task import task
from beam_spark_runner.engine.task.chained_tasks import (
    FullExchangeError,
    run_chained,
)
from beam_spark_runner.engine.worker.runtime import worker
from beam_spark_runner.scheduling.attempts import Accepted, Report, judge
from tests.unit.engine.task.emitted import reports_in
from tests.unit.engine.task.epochs_of_tasks import programs_of, rows_of
from tests.unit.engine.task.exchanges import exchanged

JOB = "chained tasks"
MAX_BYTES = 1 << 20
GROUPS: list[tuple[int, list[int]]] = []
EPOCH = reports_pb2.Epoch(number=1, clock_stands=True)


@pytest.fixture(autouse=True)
def _worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(task, "IS_KEPT", True)  # as in a Python worker
    GROUPS.clear()
    yield
    worker.end_job(JOB, 60)


def grouping(p: beam.Pipeline) -> None:
    numbers = p | Stream(coder=VarIntCoder()).add_elements([1])
    keyed = numbers | beam.Map(lambda number: (number % 5, number)).with_output_types(
        tuple[int, int]
    )
    keyed | beam.WindowInto(FixedWindows(10)) | beam.GroupByKey() | beam.MapTuple(note)


def note(key: int, values: Any) -> None:
    GROUPS.append((key, sorted(values)))


def programs(folder: Path) -> list[LevelProgram]:
    return programs_of(grouping, folder, job=JOB, partitions=2)


def decoded(batches: list[pa.RecordBatch]) -> list[Report]:
    return reports_of(report.SerializeToString() for report in reports_in(batches))


def test_each_task_of_each_level_runs_and_all_agree(tmp_path: Path) -> None:
    first, second = chain = programs(tmp_path)
    rows = rows_of(chain, EPOCH, *range(10), watermark_us=MAX_US)
    reports = decoded(run_chained(chain, rows, MAX_BYTES))
    assert sorted((each.level, each.partition) for each in reports) == [(0, 0), (1, 0), (1, 1)]
    assert judge(reports, {1: 2}, first=0, materialised={}) == Accepted()
    assert sorted(GROUPS) == [(key, [key, key + 5]) for key in range(5)]
    assert (first.has_exchange, second.has_exchange) == (False, True)


def test_rows_are_exchanged_as_by_spark(tmp_path: Path) -> None:
    _, reader = programs(tmp_path)
    routes = np.array([5, -3, 8, -3, 7, routing.route_prefix(routing.CONTROL_CODE)], np.int64)
    values = [b"a", b"b", b"c", b"d", b"e", b"mark"]
    halves = [
        [schema.batch_of(1, routes[:3], None, None, values[:3])],
        [schema.batch_of(1, routes[3:], None, None, values[3:])],
    ]
    got = [
        [
            (route, value)
            for batch in batches
            for route, value in zip(
                batch.column(1).to_pylist(), batch.column(4).to_pylist(), strict=True
            )
        ]
        for batches in exchanged(reader, halves)
    ]
    of = routing.partitions_of_routes(routes, 2).tolist()
    expected = sorted(zip(of, routes.tolist(), values, strict=True), key=lambda row: row[:2])
    assert got == [
        [(route, value) for partition, route, value in expected if partition == here]
        for here in range(2)
    ]


def test_levels_that_emit_too_much_are_left_to_spark(tmp_path: Path) -> None:
    chain = programs(tmp_path)
    with pytest.raises(FullExchangeError):
        run_chained(chain, rows_of(chain, EPOCH, *range(10)), max_bytes=100)
