"""What a task reports of elements that wait for a side input."""

from collections.abc import Iterator
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.pvalue import AsList
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.window import FixedWindows

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.engine.task import task
from beam_spark_runner.engine.worker.runtime import worker
from tests.unit.engine.task.epochs_of_tasks import SECOND, epoch, head_of, programs_of

JOB = "awaited side inputs"


@pytest.fixture(autouse=True)
def _worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(task, "IS_KEPT", True)  # as in a Python worker
    yield
    worker.end_job(JOB, 60)


def test_the_end_of_the_window_that_elements_wait_for(tmp_path: Path) -> None:
    def build(p: beam.Pipeline) -> None:
        numbers = p | Stream(coder=VarIntCoder()).add_elements([1])
        views = [
            AsList(numbers | f"every {size} s" >> beam.WindowInto(FixedWindows(size)))
            for size in (10, 100)
        ]
        windowed = numbers | "main" >> beam.WindowInto(FixedWindows(10))
        windowed | "look up" >> beam.Map(lambda number, *sides: number, *views)

    programs = programs_of(build, tmp_path, job=JOB)
    views = sorted(
        int(edge.dest)
        for level in programs
        for stage in level.stages
        for edge in stage.in_epochs.views.values()
    )
    first = epoch(programs, reports_pb2.Epoch(number=1), 3)
    ends = sorted(end_us for each in first for end_us in each.shard.awaited_us.values())
    assert ends == [10 * SECOND - 1, 100 * SECOND - 1]

    def awaited_with(watermark_us: int) -> list[int]:
        begins = reports_pb2.Epoch(
            number=2,
            heads=[head_of(each) for each in first if each.shard.epoch],
            watermarks_us=dict.fromkeys(views, watermark_us),
        )
        reports = epoch(programs, begins, watermark_us=watermark_us)
        return [end_us for each in reports for end_us in each.shard.awaited_us.values()]

    assert awaited_with(10 * SECOND) == [100 * SECOND - 1]
    assert awaited_with(100 * SECOND) == []
