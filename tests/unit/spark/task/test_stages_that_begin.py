"""Tasks of two epochs, of which the second begins with what the first one has stored."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from apache_beam.coders import VarIntCoder, WindowedValueCoder
from apache_beam.coders.coders import GlobalWindowCoder
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import TimerSpec, on_timer
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import Timestamp
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
from tests.unit.spark.task.emitted import reports_in

HAPPENED: list[str] = []
JOB = "stages that begin"
SECOND = 1_000_000


class Fails(beam.DoFn):  # type: ignore[misc]
    def setup(self) -> None:
        HAPPENED.append("set up")

    def process(self, number: int) -> None:
        HAPPENED.append(f"got {number}")
        raise ValueError("no")

    def teardown(self) -> None:
        HAPPENED.append("torn down")


class Tells(beam.DoFn):  # type: ignore[misc]
    """Sets a timer for the moment that each element says, of both kinds."""

    EVENT = TimerSpec("event", TimeDomain.WATERMARK)
    CLOCK = TimerSpec("clock", TimeDomain.REAL_TIME)

    def process(
        self,
        pair: tuple[str, int],
        event: Any = beam.DoFn.TimerParam(EVENT),
        clock: Any = beam.DoFn.TimerParam(CLOCK),
    ) -> None:
        HAPPENED.append(f"got {pair[1]}")
        event.set(Timestamp(pair[1]), dynamic_timer_tag=str(pair[1]))
        clock.set(Timestamp(pair[1]), dynamic_timer_tag=str(pair[1]))

    @on_timer(EVENT)  # type: ignore[untyped-decorator]
    def at(self, tag: Any = beam.DoFn.DynamicTimerTagParam) -> None:
        HAPPENED.append(f"event {tag}")

    @on_timer(CLOCK)  # type: ignore[untyped-decorator]
    def on_the_clock(self, tag: Any = beam.DoFn.DynamicTimerTagParam) -> None:
        HAPPENED.append(f"clock {tag}")


def programs_in(folder: Path, do_fn: beam.DoFn) -> list[LevelProgram]:
    """Return the programs of all levels of a pipeline, one of whose steps asks for stable input."""

    def build(p: beam.Pipeline) -> None:
        numbers = p | Stream(coder=VarIntCoder()).add_elements([1])
        if isinstance(do_fn, Tells):
            key = beam.Map(lambda number: ("k", number)).with_output_types(tuple[str, int])
            numbers = numbers | key
        numbers | "send" >> beam.ParDo(do_fn)

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
            lineage="main",
            deltas=str(folder / "deltas"),
            local=str(folder / "local"),
            key_groups=128,
        ),
    )
    (folder / "deltas").mkdir()
    (folder / "local").mkdir()
    (segment,) = plan.segments
    builder, levels = ProgramBuilder(plan, JOB, limits), range(len(segment.levels))
    return [
        builder.level(segment, index, 1, {}, job=levels, round_budget_s=None) for index in levels
    ]


def batch(dest: int, values: list[bytes]) -> Any:
    return schema.batch_of(dest, np.zeros(len(values), np.int64), None, None, values)


def epoch(
    programs: Sequence[LevelProgram],
    begins: reports_pb2.Epoch,
    *numbers: int,
    watermark_s: int = -1,
) -> list[reports_pb2.TaskReport]:
    """Run the tasks of an epoch, one for each level; return what they report."""
    dest = int(programs[0].stages[0].input.dest)
    watermark_us = MIN_US if watermark_s < 0 else watermark_s * SECOND
    mark = reports_pb2.AttemptMark(epoch=begins, watermarks_us={dest: watermark_us})
    coder = WindowedValueCoder(VarIntCoder(), GlobalWindowCoder())
    rows = [coder.encode(WindowedValue(each, 0, (GlobalWindow(),))) for each in numbers]
    batches = [batch(schema.CONTROL, [mark.SerializeToString()])]
    if rows:
        batches.append(batch(dest | schema.WINDOWED, rows))
    reports: list[reports_pb2.TaskReport] = []
    for program in programs:
        output = list(task.LevelTask(program).run(iter(batches)))
        reports += reports_in(output)
        # As Spark sorts them; there is one key.
        is_mark = [pa.array(schema.dests_of(each) == schema.CONTROL) for each in output]
        is_report = [pa.array(schema.dests_of(each) == schema.REPORT) for each in output]
        batches = [
            *(each.filter(rows) for each, rows in zip(output, is_mark, strict=True)),
            *(
                each.filter(pc.invert(pc.or_(marks, reported)))
                for each, marks, reported in zip(output, is_mark, is_report, strict=True)
            ),
        ]
    return reports


def head_of(report: reports_pb2.TaskReport) -> reports_pb2.ShardHead:
    shard = report.shard
    return reports_pb2.ShardHead(
        level=report.level,
        partition=report.partition,
        epoch=shard.epoch,
        attempt=shard.attempt,
    )


@pytest.fixture(autouse=True)
def _worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(task, "IS_KEPT", True)  # as in a Spark worker
    HAPPENED.clear()
    yield
    worker.end(JOB, 60)


def test_a_step_that_fails_before_anything_comes_is_torn_down(tmp_path: Path) -> None:
    programs = programs_in(tmp_path, Fails())
    (stored,) = epoch(programs, reports_pb2.Epoch(number=1), 1)
    assert stored.shard.awaits_commit
    assert HAPPENED == ["set up"]
    (report,) = epoch(programs, reports_pb2.Epoch(number=2, heads=[head_of(stored)]))
    assert "ValueError: no" in report.failure.cause
    assert HAPPENED == ["set up", "got 1", "torn down"]


def test_an_attempt_sees_what_is_committed_whatever_comes_with_it(tmp_path: Path) -> None:
    """Neither elements, nor the watermark, nor the clock of its own epoch."""
    programs = programs_in(tmp_path, Tells())
    first = epoch(programs, reports_pb2.Epoch(number=1, clock_us=3 * SECOND), 2, 4, watermark_s=3)
    assert HAPPENED == []

    def second(clock_s: int, watermark_s: int, *numbers: int) -> reports_pb2.TaskReport:
        HAPPENED.clear()
        begins = reports_pb2.Epoch(
            number=2,
            clock_us=clock_s * SECOND,
            committed_clock_us=3 * SECOND,
            clock_stands=True,
            heads=[head_of(first[1])],
            watermarks_us=first[1].watermarks_us,
        )
        *_, report = epoch(programs, begins, *numbers, watermark_s=watermark_s)
        return report

    expected = ["got 2", "got 4", "event 2", "clock 2"]
    more = second(20, 20, 1, 7)
    assert expected == HAPPENED
    assert more.shard.awaits_commit
    less = second(4, 4)
    assert expected == HAPPENED
    assert not less.shard.awaits_commit
    (dest,) = (stage.input.dest for stage in programs[1].stages)
    assert (more.watermarks_us[dest], less.watermarks_us[dest]) == (20 * SECOND, 4 * SECOND)
