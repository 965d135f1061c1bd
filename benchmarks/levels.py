"""The CPU time of an element in each kind of task: ``python -m benchmarks.levels``.

Runs the tasks of a GroupByKey's two levels, of a stateful DoFn's, of fused Maps and of a combiner,
in this process, without Spark, whose own cost is the difference to ``make bench``. It measures the
CPU time of the process, so that other work on the machine disturbs it little.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.window import SlidingWindows, TimestampedValue

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.driving.program_builder import ProgramBuilder
from beam_spark_runner.engine.limits import Limits
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.task import task
from beam_spark_runner.job.prepare.compile import compile_graph
from beam_spark_runner.plan.model import Plan
from beam_spark_runner.portable.pipeline import from_proto
from benchmarks.cases import SumByKey

COUNT = 300_000
ARROW_ROWS = 10_000  # of a batch, as Spark cuts them
LIMITS = Limits(max_attempts=1, row_limit_bytes=1 << 20, max_element_bytes=1 << 30, cache_bytes=0)


class _Pairs(beam.DoFn):  # type: ignore[misc]
    """Emits pairs of 100 bytes, four for each key."""

    def process(self, element: Any) -> Iterator[tuple[bytes, bytes]]:
        padding = b"x" * 88
        for number in range(COUNT):
            key = (number * 2654435761 % (1 << 32)) % (COUNT // 4)
            yield key.to_bytes(4, "big"), number.to_bytes(8, "big") + padding


class _Numbers(beam.DoFn):  # type: ignore[misc]
    def process(self, element: Any) -> Iterator[int]:
        return iter(range(COUNT))


class _Drop(beam.DoFn):  # type: ignore[misc]
    """Drops all elements, at the end of a pipeline."""

    def process(self, element: Any) -> None:
        return


def _plan(build: Callable[[beam.Pipeline], Any]) -> Plan:
    pipeline = beam.Pipeline()
    build(pipeline)
    environment = SparkPortableRunner().default_environment(PipelineOptions())
    return compile_graph(from_proto(pipeline.to_runner_api(default_environment=environment)))


def _grouping(pipeline: beam.Pipeline) -> Any:
    pairs = pipeline | beam.Impulse() | beam.ParDo(_Pairs()).with_output_types(tuple[bytes, bytes])
    return pairs | beam.GroupByKey() | beam.ParDo(_Drop())


def _generating(pipeline: beam.Pipeline) -> Any:
    return pipeline | beam.Impulse() | beam.ParDo(_Pairs()) | beam.ParDo(_Drop())


def _stateful(pipeline: beam.Pipeline) -> Any:
    pairs = pipeline | beam.Impulse() | beam.ParDo(_Pairs())
    ones = pairs | beam.MapTuple(lambda key, _: (int.from_bytes(key, "big"), 1)).with_output_types(
        tuple[int, int]
    )
    return ones | beam.ParDo(SumByKey()) | beam.ParDo(_Drop())


def _ten_maps(pipeline: beam.Pipeline) -> Any:
    numbers = pipeline | beam.Impulse() | beam.ParDo(_Numbers())
    for position in range(10):
        numbers |= f"Map{position}" >> beam.Map(lambda number: number + 1)
    return numbers | beam.ParDo(_Drop())


def _maps_of_dicts(pipeline: beam.Pipeline) -> Any:
    numbers = pipeline | beam.Impulse() | beam.ParDo(_Numbers())
    rows = numbers | beam.Map(lambda number: {"id": number, "tags": ["a", "b"]})
    for position in range(9):
        rows |= f"Map{position}" >> beam.Map(lambda row: {**row, "id": row["id"] + 1})
    return rows | beam.ParDo(_Drop())


def _stamped(pipeline: beam.Pipeline) -> beam.PCollection:
    numbers = pipeline | beam.Impulse() | beam.ParDo(_Numbers())
    return numbers | beam.Map(lambda n: TimestampedValue((n % 10_000, 1), n // 10_000))


def _stamping(pipeline: beam.Pipeline) -> Any:
    return _stamped(pipeline) | beam.ParDo(_Drop())


def _sliding(pipeline: beam.Pipeline) -> Any:
    windowed = _stamped(pipeline) | beam.WindowInto(SlidingWindows(size=10, period=1))
    return windowed | beam.CombinePerKey(sum) | beam.ParDo(_Drop())


def _run(plan: Plan, level: int, batches: list[pa.RecordBatch]) -> tuple[list[pa.RecordBatch], int]:
    """Run a task of a level three times; return its output, and the least CPU ns per element."""
    best = 1 << 62
    output: list[pa.RecordBatch] = []
    for _ in range(3):
        builder = ProgramBuilder(plan, f"level-{level}-{id(plan)}", LIMITS)
        segment = plan.segments[0]
        levels = range(len(segment.levels))
        program = builder.level(segment, level, 2, {}, job=levels, round_budget_s=None)
        began = time.process_time_ns()
        output = list(task.LevelTask(program).run(iter(batches)))
        _check(output)
        best = min(best, time.process_time_ns() - began)
    return output, best // COUNT


def _sorted(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Sort rows by route, and cut them into batches, as Spark would."""
    table = pa.Table.from_batches(batches)
    order = np.argsort(table.column("route").to_numpy(), kind="stable")
    sorted_rows: list[pa.RecordBatch] = table.take(pa.array(order)).to_batches(
        max_chunksize=ARROW_ROWS
    )
    return sorted_rows


def _check(output: list[pa.RecordBatch]) -> None:
    for batch in output:
        is_report = pa.array(schema.dests_of(batch) == schema.REPORT)
        for value in batch.filter(is_report).column(4).to_pylist():
            report = reports_pb2.TaskReport.FromString(value)
            if report.HasField("failure"):
                raise RuntimeError(report.failure.traceback)


def main() -> None:
    """Print the nanoseconds of CPU time per element."""
    start = np.zeros(1, np.int64)

    def impulse(plan: Plan) -> list[pa.RecordBatch]:
        return [schema.batch_of(int(plan.segments[0].impulses[0]), start, None, None, [b""])]

    plan = _plan(_generating)
    _, generating = _run(plan, 0, impulse(plan))
    plan = _plan(_grouping)
    written, writing = _run(plan, 0, impulse(plan))
    _, reading = _run(plan, 1, _sorted(written))
    plan = _plan(_stateful)
    written, _ = _run(plan, 0, impulse(plan))
    _, keeping = _run(plan, 1, _sorted(written))
    plan = _plan(_ten_maps)
    _, maps = _run(plan, 0, impulse(plan))
    plan = _plan(_maps_of_dicts)
    _, maps_of_dicts = _run(plan, 0, impulse(plan))
    plan = _plan(_stamping)
    _, stamping = _run(plan, 0, impulse(plan))
    plan = _plan(_sliding)
    written, sliding = _run(plan, 0, impulse(plan))
    _, merging = _run(plan, 1, _sorted(written))
    print(f"GroupByKey, making an element (SDK and user code): {generating:6,d} ns")
    print(f"GroupByKey, from element to row (ours and Arrow):   {writing - generating:6,d} ns")
    print(f"GroupByKey, from row to group and DoFn:             {reading:6,d} ns")
    print(f"two states and a timer, from row to DoFn:           {keeping:6,d} ns")
    print(f"ten fused Maps (SDK and user code):                 {maps:6,d} ns")
    print(f"ten fused Maps of dicts:                            {maps_of_dicts:6,d} ns")
    print(f"a Map that gives timestamps:                        {stamping:6,d} ns")
    print(f"sums over ten sliding windows, before the shuffle:  {sliding:6,d} ns")
    print(f"sums over ten sliding windows, after the shuffle:   {merging:6,d} ns")


if __name__ == "__main__":
    main()
