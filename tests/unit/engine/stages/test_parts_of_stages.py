"""Of which parts a stage consists, by what it stores."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.pvalue import AsIter
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from apache_beam.transforms.window import FixedWindows

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.engine.stages.operator import OneBundle
from beam_spark_runner.engine.stages.stage import Stage
from beam_spark_runner.engine.task import task
from beam_spark_runner.engine.task.epoch_stages import EpochStages
from beam_spark_runner.engine.worker.runtime import worker
from tests.unit.engine.task.epochs_of_tasks import epoch, programs_of

JOB = "opened stages"
Numbers: TypeAlias = Any  # a PCollection of them


class Counts(beam.DoFn):  # type: ignore[misc]
    COUNT = ReadModifyWriteStateSpec("count", VarIntCoder())

    def process(self, pair: tuple[int, int], count: Any = beam.DoFn.StateParam(COUNT)) -> None:
        count.write((count.read() or 0) + 1)


class Ranges(RestrictionProvider):  # type: ignore[misc]
    def initial_restriction(self, element: int) -> OffsetRange:
        return OffsetRange(0, element)

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, element: int, restriction: OffsetRange) -> int:
        return int(restriction.size())


RANGES = beam.DoFn.RestrictionParam(Ranges())


class Reads(beam.DoFn):  # type: ignore[misc]
    def process(self, element: int, tracker: Any = RANGES) -> Iterator[int]:
        position = tracker.current_restriction().start
        while tracker.try_claim(position):
            yield position
            position += 1


def _pairs(numbers: Numbers) -> Numbers:
    return numbers | beam.Map(lambda n: (n, n)).with_output_types(tuple[int, int])


def _send(do: beam.PTransform) -> Callable[[Numbers], object]:
    return lambda numbers: numbers | "send" >> do


def _with_side_input(numbers: Numbers) -> object:
    return numbers | "send" >> beam.Map(lambda n, side: n, AsIter(numbers))


def _groups(numbers: Numbers) -> object:
    return _pairs(numbers) | "send" >> beam.GroupByKey() | beam.Map(print)


def _groups_with_side_input(numbers: Numbers) -> object:
    grouped = _pairs(numbers) | beam.GroupByKey()
    return grouped | "send" >> beam.Map(lambda pair, side: pair, AsIter(numbers))


def _state(numbers: Numbers) -> object:
    return _pairs(numbers) | "send" >> beam.ParDo(Counts())


def _keys_only(numbers: Numbers) -> object:
    return _pairs(numbers) | "send" >> beam.Map(print)


NAMES = {"send", "Map(print)", "WindowInto(WindowIntoFn) + send", "send + Map(print)"}
PARTS = [
    (_send(beam.Map(print)), {}, ["OneBundle"]),
    (_with_side_input, {}, ["OneBundle", "AwaitView"]),
    (_groups, {}, ["OneBundle", "DueGroups"]),
    (_groups_with_side_input, {}, ["OneBundle", "AwaitView", "DueGroups"]),
    (_state, {}, ["OneBundle", "DueKeys", "RecordsInFlight"]),
    (_send(beam.Map(print)), {"is_stable": True}, ["OneBundle", "AwaitCommit", "stable"]),
    (_state, {"is_stable": True}, ["OneBundle", "AwaitCommit", "DueKeys", "stable"]),
    (_state, {"is_sorted": True}, ["OneBundle", "SortByTime"]),
    (_keys_only, {"is_sorted": True}, ["OneBundle", "SortByTime"]),
    (_state, {"is_sorted": True, "is_stable": True}, ["OneBundle", "SortByTime", "stable"]),
    (_send(beam.ParDo(Reads())), {}, ["BundlesInTurn", "Restrictions"]),
    (
        _send(beam.ParDo(Reads())),
        {"is_stable": True},
        ["BundlesInTurn", "Restrictions", "stable"],
    ),
]


@pytest.fixture(autouse=True)
def _worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(task, "IS_KEPT", True)  # as in a Python worker
    yield
    worker.end_job(JOB, 60)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> dict[str, Stage]:
    """Return a dictionary of all stages that store anything, by name, which ``run`` opens."""
    stages: dict[str, Stage] = {}
    finish = EpochStages.finish

    def opening(self: EpochStages) -> list[bytes]:
        for program in self._programs.values():
            stages[program.name] = self[program.stage]
        return finish(self)

    monkeypatch.setattr(EpochStages, "finish", opening)
    return stages


def run(step: Callable[[Numbers], object], folder: Path, **requires: bool) -> None:
    """Run one epoch of a pipeline that sends numbers to a step."""

    def build(p: beam.Pipeline) -> None:
        numbers = p | Stream(coder=VarIntCoder()).add_elements([1])
        step(numbers | beam.WindowInto(FixedWindows(10)))

    programs = programs_of(build, folder, job=JOB, **requires)
    begins = reports_pb2.Epoch(number=1, clock_stands=True, budget_us=60_000_000)
    reports = epoch(programs, begins, 1, 2)
    assert not any(each.HasField("failure") for each in reports)


@pytest.mark.parametrize(("step", "requires", "parts"), PARTS)
def test_what_a_stage_stores_decides_on_its_operator_and_gates(
    step: Callable[[Numbers], object],
    requires: dict[str, bool],
    parts: list[str],
    opened: dict[str, Stage],
    tmp_path: Path,
) -> None:
    run(step, tmp_path, **requires)
    *_, stage = (each for name, each in opened.items() if name in NAMES)
    seen = [type(stage._operator).__name__, *(type(gate).__name__ for gate in stage._gates)]
    assert seen + ["stable"] * stage._is_stable == parts
    # Its elements pass through the first gate if they wait there.
    takes = stage._reader._bundle._bundle
    if isinstance(stage._operator, OneBundle):
        waits = not {"DueKeys", "DueGroups", "RecordsInFlight"}.issuperset(parts[1:])
        assert (takes is not stage._operator.input) == waits


def test_the_stage_of_a_side_input_runs_no_bundle(opened: dict[str, Stage], tmp_path: Path) -> None:
    run(_with_side_input, tmp_path)
    view = opened["side input of send"]
    assert view.bundle is None
    assert type(view._operator).__name__ == "ViewWriter"
    assert [type(gate).__name__ for gate in view._gates] == ["DueGroups"]
    assert view.progress() == ()
