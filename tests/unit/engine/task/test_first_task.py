"""The only task of a segment's first Spark job."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner._generated.backchannel_pb2 import OfferedRows
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.reports import reports_of
from beam_spark_runner.engine.task import first_task, task
from beam_spark_runner.engine.task.first_task import FirstTask, TooManyRowsError
from beam_spark_runner.engine.worker.runtime import worker
from beam_spark_runner.scheduling.attempts import Accepted, Failed, judge
from tests.spark.restrictions import RESTRICTION
from tests.unit.engine.task.emitted import reports_in, values_to
from tests.unit.engine.task.segments_of_tasks import FirstSegment

JOB = "first task"
LONG_S = 600.0
NO_TIME_S = 1e-9
SEEN: list[Any] = []
GATE = threading.Event()


@pytest.fixture(autouse=True)
def _worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(task, "IS_KEPT", True)  # as in a Python worker
    SEEN.clear()
    GATE.clear()
    yield
    worker.end_job(JOB, 60)


def numbers(p: beam.Pipeline, *elements: int) -> Any:
    return p | beam.Create(elements or range(20))


def grouping(p: beam.Pipeline) -> None:
    pairs = numbers(p) | beam.Map(lambda n: (n % 5, n)).with_output_types(tuple[int, int])
    pairs | beam.GroupByKey() | beam.MapTuple(note_group)


def note_group(key: int, elements: Any) -> None:
    SEEN.append((key, sorted(elements)))


def note(element: Any) -> None:
    SEEN.append(element)


def failing_at_seven(n: int) -> float:
    SEEN.append(n)
    return 1 / (n - 7)


def waiting(n: int) -> int:
    assert GATE.wait(60)
    return n


def run(build: Any, budget_s: float, **limits: Any) -> list[pa.RecordBatch]:
    given = FirstSegment(build, JOB)
    return list(FirstTask(given.programs, budget_s, **limits).run(given.fed))


def reports(batches: list[pa.RecordBatch]) -> list[reports_pb2.TaskReport]:
    return sorted(reports_in(batches), key=lambda report: report.level)


def marks(batches: list[pa.RecordBatch]) -> list[reports_pb2.AttemptMark]:
    return [
        reports_pb2.AttemptMark.FromString(value) for value in values_to(schema.CONTROL, batches)
    ]


def verdict(batches: list[pa.RecordBatch]) -> Any:
    found = reports_of(each.SerializeToString() for each in reports(batches))
    tasks = {report.level: 1 for report in found if report.level}
    return judge(found, tasks, first=0, materialised={})


def test_all_levels_run_and_read_each_other() -> None:
    batches = run(grouping, LONG_S)
    assert sorted(SEEN) == [(key, [key, key + 5, key + 10, key + 15]) for key in range(5)]
    assert [report.level for report in reports(batches)] == [0, 1, 2]
    assert verdict(batches) == Accepted()
    assert sum(report.unread_rows for report in reports(batches)) == 0
    # The one mark is that of the last level, for the job that reads the rows.
    (mark,) = marks(batches)
    assert (mark.attempt, mark.run) == (reports(batches)[-1].attempt, 3)


def test_when_the_time_is_over_unread_rows_are_left() -> None:
    batches = run(grouping, NO_TIME_S)
    first = FirstSegment(grouping, JOB).programs[1].stages[0].input.dest
    assert SEEN == []
    found = reports(batches)
    # The impulse is one row; of the level after it, nothing has been read.
    assert [report.level for report in found] == [0]
    assert len(values_to(first, batches)) == 20
    assert verdict(batches) == Accepted()
    (mark,) = marks(batches)
    assert (mark.attempt, mark.run) == (found[-1].attempt, 3)


class Late(FirstTask):
    """Has no time left after a number of questions."""

    questions = 0

    def left_s(self) -> float:
        self.questions -= 1
        return LONG_S if self.questions >= 0 else 0.0


@pytest.mark.parametrize("questions", range(24))
def test_each_element_is_read_or_left(questions: int) -> None:
    given = FirstSegment(grouping, JOB)
    _, first, grouped = (int(each.stages[0].input.dest) for each in given.programs)
    one = Late(given.programs, LONG_S)
    one.questions = questions
    batches = list(one.run(given.fed))
    last = reports(batches)[-1]
    left = len(values_to(first, batches))
    read = len(values_to(grouped, batches)) + sum(len(elements) for _, elements in SEEN)
    assert left + read == 20
    assert last.unread_rows == (left if last.level == 1 else len(values_to(grouped, batches)))
    assert verdict(batches) == Accepted()
    assert [mark.attempt for mark in marks(batches)] == [last.attempt]


def test_a_level_that_emits_much_is_the_last_one() -> None:
    batches = run(grouping, LONG_S, max_bytes=10)
    assert [report.level for report in reports(batches)] == [0]
    assert verdict(batches) == Accepted()
    assert len(marks(batches)) == 1


def test_the_last_level_reads_no_more_rows_once_it_has_emitted_many() -> None:
    def build(p: beam.Pipeline) -> None:
        spread = numbers(p, *range(200)) | beam.Reshuffle()
        long = spread | "long" >> beam.Map(lambda n: b"x" * 200_000)
        p | "one" >> beam.Create([1]) | beam.Map(lambda n, found: n, beam.pvalue.AsList(long))

    given = FirstSegment(build, JOB)
    (dest,) = map(int, given.segment.writes)
    batches = list(FirstTask(given.programs, LONG_S, max_bytes=1_000_000).run(given.fed))
    last = reports(batches)[-1]
    assert last.level == given.programs[-1].level
    assert 0 < last.unread_rows < 200
    assert values_to(dest, batches)
    assert verdict(batches) == Accepted()


def test_a_task_gives_up_that_emits_more_than_the_driver_takes() -> None:
    def build(p: beam.Pipeline) -> None:
        (
            numbers(p)
            | beam.FlatMap(lambda n: [b"x" * 10_000] * 100)
            | beam.Reshuffle()
            | beam.Map(len)
        )

    given = FirstSegment(build, JOB)
    one = FirstTask(given.programs, LONG_S, max_returned_bytes=1 << 20)
    with pytest.raises(TooManyRowsError):
        list(one.run(given.fed))


def test_user_code_that_fails_ends_the_task() -> None:
    def build(p: beam.Pipeline) -> None:
        numbers(p) | beam.Map(failing_at_seven) | beam.Reshuffle() | "then" >> beam.Map(note)

    batches = run(build, LONG_S)
    assert isinstance(verdict(batches), Failed)
    assert 7 in SEEN
    assert [report.level for report in reports(batches)] == [0, 1]


class Endless(beam.DoFn):  # type: ignore[misc]
    def process(self, element: tuple[str, int], tracker: Any = RESTRICTION) -> Iterator[Any]:
        position = tracker.current_restriction().start
        while tracker.try_claim(position):
            yield position
            position += 1


@pytest.mark.parametrize(
    ("restrictions", "left"),
    [
        pytest.param([("a", 4_000_000)], 4, id="the rest of a single one, in as many parts"),
        pytest.param([("a", 10_000_000)], 1, id="a large one, at once"),
        pytest.param([("a", 1), ("b", 1), ("c", 1)], 3, id="all of several, at once"),
        pytest.param([("a", 1)], 0, id="none of a short one"),
    ],
)
def test_restrictions_that_are_left(restrictions: list[tuple[str, int]], left: int) -> None:
    def build(p: beam.Pipeline) -> None:
        counted = p | beam.Create(restrictions, reshuffle=False) | beam.ParDo(Endless())
        counted | beam.Map(lambda n: (n, n)) | beam.GroupByKey() | beam.Map(note)

    given = FirstSegment(build, JOB, round_budget_s=0.05)
    batches = list(FirstTask(given.programs, LONG_S, max_bytes=1 << 40).run(given.fed))
    found = reports(batches)
    assert sum(count.count for count in found[-1].residuals.values()) == left
    assert bool(SEEN) == (not left)
    assert verdict(batches) == Accepted()
    (mark,) = marks(batches)
    assert not mark.left_residuals


class Slow(beam.DoFn):  # type: ignore[misc]
    def process(self, element: tuple[str, int], tracker: Any = RESTRICTION) -> Iterator[Any]:
        position = tracker.current_restriction().start
        while tracker.try_claim(position):
            time.sleep(0.3)
            yield position
            position += 1


def test_levels_after_a_long_restriction_have_their_time() -> None:
    def build(p: beam.Pipeline) -> None:
        counted = p | beam.Create([("a", 1)], reshuffle=False) | beam.ParDo(Slow())
        counted | beam.Map(lambda n: (n, n)) | beam.GroupByKey() | beam.Map(note)

    given = FirstSegment(build, JOB, round_budget_s=LONG_S)
    batches = list(FirstTask(given.programs, 0.1).run(given.fed))
    assert len(SEEN) == 1
    assert verdict(batches) == Accepted()


def test_what_waits_for_a_long_element_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    offered: list[OfferedRows] = []

    def offer(job_id: str, rows: OfferedRows) -> None:
        offered.append(rows)
        GATE.set()

    monkeypatch.setattr(worker, "offer_rows", offer)
    monkeypatch.setattr(first_task, "PATIENCE_S", 0.0)

    def build(p: beam.Pipeline) -> None:
        numbers(p) | beam.Map(waiting) | beam.Reshuffle() | beam.Map(note)

    given = FirstSegment(build, JOB)
    one = FirstTask(given.programs, 0.05)
    batches = list(one.run(given.fed))
    first = int(given.programs[1].stages[0].input.dest)
    (rows,) = offered
    found = reports(batches)
    assert (rows.run, rows.level) == (3, 1)
    assert rows.attempt == next(each.attempt for each in found if each.level == 1)
    # They are among the task's own rows, too.
    again = schema.decoded_batches(rows.rows)
    assert values_to(first, again) == values_to(first, batches)
    assert found[-1].unread_rows == len(values_to(first, batches)) > 0
