"""A task whose user code does not continue: it is reported, and then ended."""

import logging
import threading
import time
from collections.abc import Callable, Iterator

import apache_beam as beam
import numpy as np
import pytest

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core.errors import RunnerError, StuckBundleError
from beam_spark_runner.driving.program_builder import ProgramBuilder
from beam_spark_runner.engine.limits import Limits
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.reports import _report_of, error_of
from beam_spark_runner.engine.task import lull_watch, task
from beam_spark_runner.engine.worker.runtime import worker
from beam_spark_runner.scheduling import lull
from tests.compiled import compile_pipeline
from tests.unit.engine.task.emitted import values_to
from tests.unit.portable.pipelines import proto_of

LET_GO = threading.Event()
HAPPENED: list[str] = []


class Runs(beam.DoFn):  # type: ignore[misc]
    """Does something with its only element, or in ``setup``."""

    def __init__(self, process: Callable[[], object], setup: Callable[[], object] = str) -> None:
        self._process, self._set_up = process, setup

    def setup(self) -> None:
        self._set_up()

    def process(self, element: bytes) -> Iterator[bytes]:
        self._process()
        yield element

    def teardown(self) -> None:
        HAPPENED.append("torn down")


def spin() -> None:
    """Stay in Python code."""
    while not LET_GO.is_set():
        time.sleep(0.01)


def block() -> None:
    """Stay outside of Python code, where nothing can be raised."""
    LET_GO.wait()


def next_step(element: bytes) -> bytes:
    return element


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    LET_GO.clear()
    HAPPENED.clear()
    yield
    LET_GO.set()
    for thread in threading.enumerate():  # outside of a test they end with their process
        if thread.name == "beam-bundle":
            thread.join(60)


def run(name: str, step: beam.DoFn, stuck_s: float, max_attempts: int = 1) -> list[RunnerError]:
    """Run the pipeline's first level, and return the failures that it reports."""

    def build(p: beam.Pipeline) -> None:
        before = p | beam.Impulse() | "Before" >> beam.Map(next_step)
        before | "Step" >> beam.ParDo(step) | beam.Reshuffle() | beam.Map(print)

    plan = compile_pipeline(proto_of(build))
    segment = plan.segments[0]
    limits = Limits(
        max_attempts=max_attempts,
        row_limit_bytes=1 << 22,
        max_element_bytes=1 << 22,
        cache_bytes=0,
        stuck_s=stuck_s,
    )
    program = ProgramBuilder(plan, name, limits).level(
        segment, 0, 2, {}, job=range(len(segment.levels)), round_budget_s=None
    )
    impulse = schema.batch_of(int(segment.impulses[0]), np.zeros(1, np.int64), None, None, [b""])
    output = list(task.LevelTask(program).run(iter([impulse])))
    worker.end_job(name)
    reports = [
        _report_of(reports_pb2.TaskReport.FromString(value))
        for value in values_to(schema.REPORT, output)
    ]
    return [error_of(report.failure) for report in reports if report.failure is not None]


def test_user_code_is_interrupted_and_the_task_reports_where_it_stood(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (error,) = run("spins", Runs(spin), stuck_s=1)
    assert isinstance(error, StuckBundleError)
    assert (error.step, error.lasted_s) == ("Step", 1)
    assert "in spin\n" in error.stack
    assert HAPPENED == ["torn down"]
    reported, given_up = (each.getMessage() for each in caplog.records if "Step" in each.message)
    assert reported.startswith("Step: its code has made no progress for ")
    assert given_up.startswith("Step: its code is interrupted")
    assert all("in spin\n" in text for text in (reported, given_up))


def test_what_cannot_be_interrupted_ends_with_its_process() -> None:
    """The error leaves the task, so that Spark throws the process away; nobody waits for it."""
    with pytest.raises(StuckBundleError, match=r"^Step: .* has made no progress for 1 s") as caught:
        run("blocks", Runs(block), stuck_s=1)
    assert "in block\n" in caught.value.stack
    assert HAPPENED == []


def test_a_task_that_has_tries_left_raises() -> None:
    with pytest.raises(StuckBundleError, match="Step"):
        run("spins again", Runs(spin), stuck_s=1, max_attempts=2)
    assert HAPPENED == ["torn down"]


def test_setup_that_does_not_end_is_of_the_stage() -> None:
    with pytest.raises(StuckBundleError, match="Step") as caught:
        run("sets up", Runs(str, setup=block), stuck_s=1)
    assert "in setup\n" in caught.value.stack


@pytest.mark.parametrize("stuck_s", [0, 600], ids=["never", "later"])
def test_what_is_reported_may_still_continue(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stuck_s: float
) -> None:
    monkeypatch.setattr(lull, "MAX_SILENT_US", 300_000)
    monkeypatch.setattr(lull_watch, "_MAX_S", 0.1)

    class GoesOn(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            LET_GO.set()

    handler = GoesOn()
    logger = logging.getLogger(lull_watch.__name__)
    logger.addHandler(handler)
    try:
        assert run(f"goes on {stuck_s}", Runs(block), stuck_s) == []
    finally:
        logger.removeHandler(handler)
    assert HAPPENED == ["torn down"]


def test_the_error_is_found_in_what_spark_makes_of_it() -> None:
    error = StuckBundleError("My step", 7, "a stack\nof lines\n")
    text = f"Job aborted: Traceback\nbeam_spark_runner.core.errors.StuckBundleError: {error}\n\tat"
    found = StuckBundleError.found_in(text)
    assert found is not None
    assert (found.step, found.lasted_s, found.stack) == ("My step", 7, "a stack\nof lines")
    assert StuckBundleError.found_in("StuckBundleError: another text") is None
