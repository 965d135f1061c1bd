"""What the thread that waits for a task may ask of its stages while these are open."""

from collections.abc import Iterator
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.pvalue import AsIter
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.window import FixedWindows

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.engine.task.epoch_stages import EpochStages
from beam_spark_runner.engine.task.lull_watch import LullWatch
from beam_spark_runner.engine.worker.runtime import worker
from tests.unit.engine.task.epochs_of_tasks import epoch, programs_of

JOB = "watched stages"


@pytest.fixture(autouse=True)
def _worker() -> Iterator[None]:
    yield
    worker.end_job(JOB, 60)


def test_stages_of_all_kinds_can_be_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that gathers a side input runs no bundle."""
    seen: list[str] = []
    finish = EpochStages.finish

    def watched(stages: EpochStages) -> list[bytes]:
        watch = LullWatch(60, "main", lambda: None, lambda: stages)
        for program in stages._programs.values():
            stage = stages[program.stage]
            watch.check()
            stage.progress()
            seen.append(type(stage._operator).__name__)
        return finish(stages)

    monkeypatch.setattr(EpochStages, "finish", watched)

    def build(p: beam.Pipeline) -> None:
        numbers = p | Stream(coder=VarIntCoder()).add_elements([1])
        pairs = numbers | beam.Map(lambda n: (n, n)).with_output_types(tuple[int, int])
        windowed = pairs | beam.WindowInto(FixedWindows(10))
        sums = windowed | beam.GroupByKey() | beam.Map(lambda pair, side: pair, AsIter(numbers))
        sums | beam.Map(print)

    begins = reports_pb2.Epoch(number=1, clock_stands=True)
    epoch(programs_of(build, tmp_path, job=JOB), begins, 1, watermark_us=MAX_US)
    assert set(seen) == {"ViewWriter", "OneBundle"}
