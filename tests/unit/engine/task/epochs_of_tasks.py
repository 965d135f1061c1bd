"""Tasks of epochs, without Spark: programs of a small pipeline, run over rows."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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
from beam_spark_runner.driving.program_builder import ProgramBuilder
from beam_spark_runner.engine.limits import Limits
from beam_spark_runner.engine.program import EpochPart, LevelProgram, ShardLocations
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.task import task
from tests.compiled import compile_pipeline
from tests.unit.engine.task.emitted import reports_in
from tests.unit.portable.pipelines import proto_of

HAPPENED: list[str] = []
SECOND = 1_000_000


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


def programs_in(
    folder: Path,
    do_fn: beam.DoFn,
    *,
    job: str,
    is_stable: bool = False,
    user_timer_batch: int | None = None,
) -> list[LevelProgram]:
    """Return the programs of all levels of a pipeline that sends numbers to a step.

    Args:
        folder: of shards and deltas.
        do_fn: of the step.
        job: its id.
        is_stable: whether it asks for stable input.
        user_timer_batch: see ``EpochPart``.
    """

    def build(p: beam.Pipeline) -> None:
        numbers = p | Stream(coder=VarIntCoder()).add_elements([1])
        if isinstance(do_fn, Tells):
            key = beam.Map(lambda number: ("k", number)).with_output_types(tuple[str, int])
            numbers = numbers | key
        numbers | "send" >> beam.ParDo(do_fn)

    return programs_of(
        build, folder, job=job, is_stable=is_stable, user_timer_batch=user_timer_batch
    )


def programs_of(
    build: Callable[[beam.Pipeline], None],
    folder: Path,
    *,
    job: str,
    is_stable: bool = False,
    is_sorted: bool = False,
    user_timer_batch: int | None = None,
    partitions: int = 1,
) -> list[LevelProgram]:
    """Return the programs of all levels of a pipeline; see ``programs_in``."""
    proto = proto_of(build)
    if is_stable:
        _require(proto, "stable_input")
    if is_sorted:
        _require(proto, "time_sorted_input")
    plan = compile_pipeline(proto)
    limits = Limits(
        max_attempts=1,
        row_limit_bytes=1 << 20,
        max_element_bytes=1 << 20,
        cache_bytes=0,
    )
    epoch_part = EpochPart(
        shards=ShardLocations(
            lineage="main",
            deltas=str(folder / "deltas"),
            local=str(folder / "local"),
            key_groups=128,
        ),
        user_timer_batch=user_timer_batch,
    )
    (folder / "deltas").mkdir(exist_ok=True)
    (folder / "local").mkdir(exist_ok=True)
    (segment,) = plan.segments
    levels = range(len(segment.levels))
    builder = ProgramBuilder(plan, job, limits, epoch_part)
    return [
        builder.level(segment, index, partitions, {}, job=levels, round_budget_s=None)
        for index in levels
    ]


def _require(proto: beam_runner_api_pb2.Pipeline, required: str) -> None:
    """Have the step "send" require some kind of input."""
    for each in proto.components.transforms.values():
        if each.unique_name == "send":
            par_do = beam_runner_api_pb2.ParDoPayload.FromString(each.spec.payload)
            setattr(par_do, f"requires_{required}", True)
            each.spec.payload = par_do.SerializeToString()
    proto.requirements.append(f"beam:requirement:pardo:{required}:v1")


def batch(dest: int, values: list[bytes]) -> Any:
    return schema.batch_of(dest, np.zeros(len(values), np.int64), None, None, values)


def rows_of(
    programs: Sequence[LevelProgram],
    begins: reports_pb2.Epoch,
    *numbers: int,
    watermark_us: int = MIN_US,
) -> list[pa.RecordBatch]:
    """Return the rows that the driver sends to the first level: a mark, and elements."""
    dest = int(programs[0].stages[0].input.dest)
    mark = reports_pb2.AttemptMark(epoch=begins, watermarks_us={dest: watermark_us})
    coder = WindowedValueCoder(VarIntCoder(), GlobalWindowCoder())
    rows = [coder.encode(WindowedValue(each, 0, (GlobalWindow(),))) for each in numbers]
    batches = [batch(schema.CONTROL, [mark.SerializeToString()])]
    if rows:
        batches.append(batch(dest | schema.WINDOWED, rows))
    return batches


def epoch(
    programs: Sequence[LevelProgram],
    begins: reports_pb2.Epoch,
    *numbers: int,
    watermark_us: int = MIN_US,
) -> list[reports_pb2.TaskReport]:
    """Run the tasks of an epoch, one for each level; return what they report."""
    batches = rows_of(programs, begins, *numbers, watermark_us=watermark_us)
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
