"""What must have become of a bounded pipeline: an undisturbed run of it, and what was counted."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from apache_beam.metrics import monitoring_infos
from apache_beam.portability.api import metrics_pb2

from beam_spark_runner.core.ids import StageId
from beam_spark_runner.driving.program_builder import ProgramBuilder
from beam_spark_runner.engine.limits import Limits
from beam_spark_runner.plan.model import Plan, Segment
from beam_spark_runner.portable.metric_values import counter_value
from tests.unit.simulation.batch.rows import Made, Processed, Row
from tests.unit.simulation.batch.tasks import NAMESPACE, Task


def undisturbed(plan: Plan, limits: Limits) -> Counter[Processed]:
    """Return what is processed if one task runs each level; see ``CompleteSavepoint.processed``."""
    builder = ProgramBuilder(plan, "job", limits)
    rows: list[Row] = []
    found: Counter[Processed] = Counter()
    for segment in plan.segments:
        rows += _fed(segment)
        for index in range(len(segment.levels)):
            program = builder.level(
                segment, index, 1, {}, job=range(index, index + 1), round_budget_s=None
            )
            work = Task(program, 0, 0).run(rows, ()).work
            rows = work.rows
            found.update(work.processed)
    return found


def _fed(segment: Segment) -> list[Row]:
    return [Row(int(dest), 0, 0, 0) for dest in segment.impulses]


def attempts_in(coded_infos: Iterable[bytes]) -> dict[int, int]:
    """Return how often metrics have counted each attempt."""
    infos = map(metrics_pb2.MonitoringInfo.FromString, coded_infos)
    return {
        int(info.labels[monitoring_infos.NAME_LABEL], 16): counter_value(info)
        for info in infos
        if info.labels[monitoring_infos.NAMESPACE_LABEL] == NAMESPACE
    }


def _plain(row: Row) -> Row:
    """Return a row without its route, which a reader does not know."""
    return row._replace(route=0)


def check(
    plan: Plan, results: Sequence[Made], expected: Counter[Processed], *, is_whole: bool
) -> None:
    """Check that each element was processed once, and that all readers of it have seen the same.

    Args:
        plan: that has run.
        results: what those attempts have made whose output counts.
        expected: see ``undisturbed``.
        is_whole: whether the pipeline has come to its end.
    """
    works = [made.work for made in results]
    processed = Counter(each for work in works for each in work.processed)
    _check_same(processed, expected, "processed elements", is_whole=is_whole)
    emitted = [row for work in works for row in work.emitted]
    emitted += [row for segment in plan.segments for row in _fed(segment)]
    sent: dict[int, Counter[Row]] = {int(dest): Counter() for dest in plan.destinations}
    for row in emitted:
        sent[row.dest][_plain(row)] += 1
    read: dict[int, Counter[Row]] = {dest: Counter() for dest in sent}
    for row in (row for work in works for row in work.consumed):
        read[row.dest][_plain(row)] += 1
    gathered = {dest for segment in plan.segments for dest in segment.side_inputs}
    for dest in plan.destinations.keys() - gathered:
        _check_same(read[dest], sent[dest], "rows that were read", is_whole=is_whole)
    for work in works:
        views = {dest: Counter(map(_plain, rows)) for dest, rows in work.views}
        stages = {plan.stages[StageId(stage)] for stage, _, _ in work.processed}
        wanted = {int(side.destination) for stage in stages for side in stage.side_inputs}
        assert wanted <= views.keys(), "a side input was not read"
        for gathers, view in views.items():
            _check_same(view, sent[gathers], "rows of a side input", is_whole=True)


def _check_same(found: Counter[Any], expected: Counter[Any], what: str, *, is_whole: bool) -> None:
    too_many, missing = (found - expected).total(), (expected - found).total()
    assert not too_many, f"{what} are too many"
    assert not (is_whole and missing), f"{what} are missing"
