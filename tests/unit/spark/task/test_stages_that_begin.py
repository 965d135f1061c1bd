"""Tasks of two epochs, of which the second begins with what the first one has stored."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.coders import VarIntCoder, WindowedValueCoder
from apache_beam.coders.coders import GlobalWindowCoder
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core.time import MIN_US
from beam_spark_runner.job.compile import compile_pipeline
from beam_spark_runner.spark.driver.program_builder import Limits, ProgramBuilder
from beam_spark_runner.spark.program import LevelProgram, ShardPlaces
from beam_spark_runner.spark.rows import schema
from beam_spark_runner.spark.task import task
from beam_spark_runner.spark.task.worker_runtime import worker
from tests.unit.portable.pipelines import proto_of

HAPPENED: list[str] = []
JOB = "stages that begin"


class Fails(beam.DoFn):  # type: ignore[misc]
    def setup(self) -> None:
        HAPPENED.append("set up")

    def process(self, number: int) -> None:
        HAPPENED.append(f"got {number}")
        raise ValueError("no")

    def teardown(self) -> None:
        HAPPENED.append("torn down")


def program_in(folder: Path) -> LevelProgram:
    def build(p: beam.Pipeline) -> None:
        p | Stream(coder=VarIntCoder()).add_elements([1]) | "send" >> beam.ParDo(Fails())

    proto = proto_of(build)
    for each in proto.components.transforms.values():
        if each.unique_name == "send":
            par_do = beam_runner_api_pb2.ParDoPayload.FromString(each.spec.payload)
            par_do.requires_stable_input = True
            each.spec.payload = par_do.SerializeToString()
    proto.requirements.append("beam:requirement:pardo:stable_input:v1")
    plan = compile_pipeline(proto)
    limits = Limits(
        max_attempts=1,
        row_limit_bytes=1 << 20,
        max_element_bytes=1 << 20,
        cache_bytes=0,
        shards=ShardPlaces(
            lineage="main", deltas=str(folder / "deltas"), local=str(folder / "local")
        ),
    )
    (folder / "deltas").mkdir()
    (folder / "local").mkdir()
    (segment,) = plan.segments
    (dest,) = segment.test_streams
    program = ProgramBuilder(plan, JOB, limits).level(
        segment, 0, 1, {}, job=range(1), round_budget_s=None
    )
    assert program.stages[0].input.dest == dest
    return program


def epoch(
    program: LevelProgram, number: int, heads: Sequence[Any], *numbers: int
) -> reports_pb2.TaskReport:
    """Run the task of an epoch; return what it reports."""
    dest = int(program.stages[0].input.dest)
    mark = reports_pb2.AttemptMark(
        epoch=reports_pb2.Epoch(number=number, heads=heads), watermarks_us={dest: MIN_US}
    )
    coder = WindowedValueCoder(VarIntCoder(), GlobalWindowCoder())
    rows = [coder.encode(WindowedValue(each, 0, (GlobalWindow(),))) for each in numbers]
    batches = [batch(schema.CONTROL, [mark.SerializeToString()])]
    if rows:
        batches.append(batch(dest | schema.WINDOWED, rows))
    output = list(task.LevelTask(program).run(iter(batches)))
    (report,) = (
        reports_pb2.TaskReport.FromString(value)
        for each in output
        if schema.block_of(each).dests[0] & schema.DEST_MASK == schema.REPORT
        for value in schema.block_of(each).values
    )
    return report


def batch(dest: int, values: list[bytes]) -> Any:
    return schema.batch_of(dest, np.zeros(len(values), np.int64), None, None, values)


def test_a_step_that_fails_before_anything_comes_is_torn_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "IS_KEPT", True)  # as in a Spark worker
    HAPPENED.clear()
    program = program_in(tmp_path)
    try:
        stored = epoch(program, 1, [], 1).shard
        assert stored.awaits_commit
        assert HAPPENED == ["set up"]
        head = reports_pb2.ShardHead(
            level=0, partition=0, epoch=stored.epoch, attempt=stored.attempt, base=stored.base
        )
        report = epoch(program, 2, [head])
        assert "ValueError: no" in report.failure.cause
        assert HAPPENED == ["set up", "got 1", "torn down"]
    finally:
        worker.end(JOB, 60)
