"""What earlier tasks have reported is passed on to the driver, whatever becomes of this task."""

import itertools
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.driving.program_builder import ProgramBuilder
from beam_spark_runner.engine.limits import Limits
from beam_spark_runner.engine.program import LevelProgram
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.marks import consumed_of
from beam_spark_runner.engine.task import task
from beam_spark_runner.engine.task.task_input import TaskInput
from beam_spark_runner.scheduling.attempts import Attempts
from tests.compiled import compile_pipeline
from tests.spark.restrictions import RESTRICTION
from tests.unit.engine.task.emitted import reports_in, values_to
from tests.unit.portable.pipelines import proto_of

FAILURE = reports_pb2.Failure(step="Outer/step", cause="ValueError: mine")


class Count(beam.DoFn):  # type: ignore[misc]
    def process(self, element: tuple[str, int], tracker: object = RESTRICTION) -> Iterator[int]:
        yield 1


def group_after_a_splittable(has_rounds: bool) -> LevelProgram:
    """Return the program of the level that groups what a splittable DoFn gives out."""

    def build(p: beam.Pipeline) -> None:
        counted = p | beam.Create([("a", 3)]) | beam.ParDo(Count())
        counted | beam.Map(lambda n: (n, n)) | beam.GroupByKey() | beam.Map(print)

    plan = compile_pipeline(proto_of(build))
    (segment,) = plan.segments
    limits = Limits(
        max_attempts=1, row_limit_bytes=1 << 20, max_element_bytes=1 << 20, cache_bytes=0
    )
    levels = range(len(segment.levels))
    budget_s = 1.0 if has_rounds else None
    return ProgramBuilder(plan, "job", limits).level(
        segment, levels[-1], 2, {}, job=levels, round_budget_s=budget_s
    )


def mark(attempt: int, **fields: Any) -> pa.RecordBatch:
    return _row(schema.CONTROL, reports_pb2.AttemptMark(attempt=attempt, **fields))


def report(attempt: int, failure: reports_pb2.Failure | None = None) -> pa.RecordBatch:
    return _row(
        schema.REPORT, reports_pb2.TaskReport(attempt=attempt, partition=attempt, failure=failure)
    )


def _row(dest: int, message: object) -> pa.RecordBatch:
    values = [message.SerializeToString()]  # type: ignore[attr-defined]
    return schema.batch_of(dest, np.zeros(1, np.int64), None, None, values)


def cuts(parts: list[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Cut the same rows into batches in every way."""
    for bounds in itertools.product([False, True], repeat=len(parts) - 1):
        batches = [[parts[0]]]
        for part, is_new in zip(parts[1:], bounds, strict=True):
            if is_new:
                batches.append([])
            batches[-1].append(part)
        yield [pa.Table.from_batches(some).combine_chunks().to_batches()[0] for some in batches]


@pytest.mark.parametrize("has_rounds", [False, True], ids=["one job", "rounds"])
@pytest.mark.parametrize(
    "leaves", [False, True], ids=["nothing is left", "another task leaves residuals"]
)
def test_a_failure_before_is_reported_however_the_rows_are_cut(
    has_rounds: bool, leaves: bool
) -> None:
    program = group_after_a_splittable(has_rounds)
    parts = [mark(1, left_residuals=leaves), mark(2, failed=True), report(1), report(2, FAILURE)]
    for order in (parts, [parts[0], parts[3], parts[1], parts[2]]):
        for batches in cuts(order):
            output = list(task.LevelTask(program).run(iter(batches)))
            found = reports_in(output)
            assert [each.attempt for each in found if each.attempt in (1, 2)] == [
                each.attempt for each in reports_in(batches)
            ]
            assert [each.failure for each in found if each.HasField("failure")] == [FAILURE]
            assert found[-1].poisoned


def test_rows_continue_where_more_will_follow() -> None:
    program = group_after_a_splittable(has_rounds=True)
    element = schema.batch_of(77, np.zeros(1, np.int64), None, None, [b"element"])
    parts = [mark(1, left_residuals=True), mark(2), element, report(1), report(2)]
    for batches in cuts(parts):
        output = list(task.LevelTask(program).run(iter(batches)))
        others = values_to(77, output)
        assert others == [b"element"]
        assert [each.attempt for each in reports_in(output)][:2] == [1, 2]
        assert not reports_in(output)[-1].poisoned
        assert reports_in(output)[-1].consumed[0].count == 2


def test_reports_and_marks_are_read_before_their_batch_is_seen() -> None:
    emitted: list[pa.RecordBatch] = []
    element = schema.batch_of(77, np.zeros(1, np.int64), None, None, [b"element"])
    parts = [mark(1), report(2), element, mark(3, run=7)]
    both = pa.Table.from_batches(parts).combine_chunks().to_batches()
    taken = TaskInput(iter([*both, report(4), mark(5, failed=True)]), emitted.append)
    first = next(taken)
    assert [each.attempt for each in reports_in(emitted)] == [2]
    assert consumed_of(taken.marks.consumed()) == {0: Attempts.of([1]), 7: Attempts.of([3])}
    assert [taken.marks.failed] == [False]
    assert schema.dests_of(first).tolist() == [77]
    taken.drain()
    assert [each.attempt for each in reports_in(emitted)] == [2, 4]
    assert consumed_of(taken.marks.consumed()) == {0: Attempts.of([1, 5]), 7: Attempts.of([3])}
    assert taken.marks.failed
    assert list(taken) == []
