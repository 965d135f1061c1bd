"""What a worker keeps for jobs whose tasks take turns in it, and when it lets go of it."""

import dataclasses
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.value_provider import RuntimeValueProvider
from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner.backchannel.driver import BackchannelServer
from beam_spark_runner.backchannel.transport import FOLDER, Route
from beam_spark_runner.driving.program_builder import ProgramBuilder
from beam_spark_runner.engine.limits import Limits
from beam_spark_runner.engine.program import LevelProgram
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.task import task
from beam_spark_runner.engine.worker.runtime import WorkerRuntime, process_log
from beam_spark_runner.harness.remote.sdk_harnesses import sdk_harnesses
from tests.compiled import compile_pipeline
from tests.unit.engine.task.emitted import reports_in
from tests.unit.portable.pipelines import proto_of

HAPPENED: list[tuple[str, str]] = []
LIMITS = Limits(
    max_attempts=1, row_limit_bytes=1 << 22, max_element_bytes=1 << 22, cache_bytes=1 << 20
)


class Noting(beam.DoFn):  # type: ignore[misc]
    def __init__(self, job: str) -> None:
        self._job = job

    def setup(self) -> None:
        HAPPENED.append((self._job, "setup"))

    def process(
        self, element: bytes, finalizer: Any = beam.DoFn.BundleFinalizerParam
    ) -> Iterator[bytes]:
        finalizer.register(self._finalize)
        HAPPENED.append((self._job, f"processes with {options_seen()}"))
        logging.getLogger("user").warning("%s processes", self._job)
        yield element

    def _finalize(self) -> None:
        logging.getLogger("user").warning("%s finalizes", self._job)
        HAPPENED.append((self._job, f"finalized with {options_seen()}"))

    def teardown(self) -> None:
        logging.getLogger("user").warning("%s tears down", self._job)
        HAPPENED.append((self._job, f"teardown with {options_seen()}"))


def options_seen() -> str:
    """Return the name of the job whose options value providers and file systems have."""
    file_systems = FileSystems._pipeline_options.get_all_options(retain_unknown_options=True)
    seen: str = RuntimeValueProvider.get_value("whose", str, "")
    assert file_systems["whose"] == seen
    return seen


class Job:
    """One that runs its tasks in this process, and hears from it by a real backchannel."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: list[str] = []
        self.finalized: list[int] = []
        self.heard = threading.Condition()
        self.asked_for_its_end = threading.Event()
        self.server = BackchannelServer(
            name, self._take, listen=("127.0.0.1", 0), advertise="127.0.0.1"
        )

        def build(p: beam.Pipeline) -> None:
            p | beam.Impulse() | beam.ParDo(Noting(name)) | beam.Reshuffle() | beam.Map(print)

        plan = compile_pipeline(proto_of(build))
        self._segment = plan.segments[0]
        self._builder = ProgramBuilder(plan, name, LIMITS)

    def _take(self, worker: str, frame: Any) -> None:
        entry = beam_fn_api_pb2.LogEntry
        if frame.awaits_end:
            self.asked_for_its_end.set()
        with self.heard:
            self.lines += [entry.FromString(coded).message for coded in frame.log_entries]
            self.finalized += frame.finalized
            self.heard.notify_all()

    @property
    def program(self) -> LevelProgram:
        levels = range(len(self._segment.levels))
        program = self._builder.level(self._segment, 0, 2, {}, job=levels, round_budget_s=None)
        limits = dataclasses.replace(
            program.limits,
            options_json=json.dumps({"beam:option:whose:v1": self.name}),
            route=self.server.route,
        )
        return dataclasses.replace(program, limits=limits)

    def run_task(self) -> None:
        start = np.zeros(1, np.int64)
        impulse = schema.batch_of(int(self._segment.impulses[0]), start, None, None, [b""])
        (report,) = reports_in(list(task.LevelTask(self.program).run(iter([impulse]))))
        assert not report.HasField("failure"), report.failure.traceback
        assert report.finalizes
        self.server.expect(report.worker, report.messages_sent)
        self.server.accept(report.worker, [report.attempt])
        with self.heard:  # the next task may use what the callback needs, only then
            assert self.heard.wait_for(lambda: report.attempt in self.finalized, 60)

    def end(self) -> None:
        assert self.server.settle()
        assert not self.server.end_job(60)
        self.server.close()


@pytest.fixture
def own_log() -> Iterator[None]:
    """Leaves the root logger as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    process_log.begin_task(None, {})
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize("count", [2, 20])
def test_jobs_take_turns(own_log: None, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(task, "IS_KEPT", True)
    HAPPENED.clear()
    jobs = [Job(f"job {number} of {count}") for number in range(count)]
    for _ in range(3):
        for job in jobs:
            job.run_task()
    for job in jobs:
        job.end()
        events = [event for name, event in HAPPENED if name == job.name]
        assert sorted(events) == sorted(
            [
                "setup",
                *[
                    f"{does} with {job.name}"
                    for does in ("processes", "finalized")
                    for _ in range(3)
                ],
                f"teardown with {job.name}",
            ]
        )
        said = ["processes", "processes", "processes", *["finalizes"] * 3, "tears down"]
        assert sorted(job.lines) == sorted(f"{job.name} {each}" for each in said)
        assert len(job.finalized) == 3


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def program(name: str) -> LevelProgram:
    return LevelProgram(
        job_id=name,
        title=name,
        run=0,
        level=0,
        partitions=1,
        has_next=False,
        has_exchange=False,
        stages=(),
        limits=LIMITS,
    )


def test_a_job_that_nobody_ends_goes_after_a_long_time() -> None:
    clock = Clock()
    worker = WorkerRuntime(clock, max_idle_s=10, max_idle_jobs=5)

    def work(name: str) -> Any:
        with worker.working_for(program(name), lambda: None) as job:
            return job

    first = work("first")
    clock.now_s = 9
    assert work("first") is first
    clock.now_s = 19
    work("second")
    assert work("first") is first
    clock.now_s = 30
    work("second")
    assert work("first") is not first


def test_a_job_that_many_others_have_followed_goes() -> None:
    clock = Clock()
    worker = WorkerRuntime(clock, max_idle_s=10, max_idle_jobs=2)
    seen = {}
    for name in ("first", "second", "third", "fourth"):
        clock.now_s += 1
        with worker.working_for(program(name), lambda: None) as seen[name]:
            pass
    for name in ("fourth", "third", "second"):  # first has gone for fourth
        with worker.working_for(program(name), lambda: None) as job:
            assert job is seen[name]
    with worker.working_for(program("first"), lambda: None) as job:
        assert job is not seen["first"]


def test_a_job_whose_task_runs_does_not_go() -> None:
    clock = Clock()
    worker = WorkerRuntime(clock, max_idle_s=10, max_idle_jobs=0)
    began, may_end = threading.Event(), threading.Event()
    seen = []

    def run() -> None:
        with worker.working_for(program("long"), lambda: None) as job:
            seen.append(job)
            began.set()
            assert may_end.wait(60)

    thread = threading.Thread(target=run)
    thread.start()
    assert began.wait(60)
    clock.now_s = 100
    with (
        worker.working_for(program("other"), lambda: None),
        worker.working_for(program("long"), lambda: None) as job,
    ):
        assert job is seen[0]
    may_end.set()
    thread.join(60)


def test_callbacks_that_wait_keep_their_job(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    clock = Clock()
    worker = WorkerRuntime(clock, max_idle_s=10)

    class Waiting:
        def __init__(self) -> None:
            self.dropped = threading.Event()

        def run(self) -> None:
            raise AssertionError("nobody has accepted anything")

        def drop(self) -> None:
            self.dropped.set()

    waiting = Waiting()
    route = Route(job_id="held", folder=str(tmp_path))
    held = dataclasses.replace(program("held"), limits=dataclasses.replace(LIMITS, route=route))
    with worker.working_for(held, lambda: None) as job:
        assert job.hold_callbacks(1, [waiting])
    clock.now_s = 1000
    with worker.working_for(program("other"), lambda: None):
        pass
    assert not waiting.dropped.is_set()
    worker.release_job("held")
    assert waiting.dropped.wait(60)


def test_a_harness_that_must_stay_keeps_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / FOLDER).mkdir()
    clock = Clock()
    worker = WorkerRuntime(clock, max_idle_s=10)
    monkeypatch.setattr(sdk_harnesses, "must_stay", lambda job_id: job_id == "java")

    def work(name: str) -> Any:
        route = Route(job_id=name, folder=str(tmp_path))
        limits = dataclasses.replace(LIMITS, route=route)
        with worker.working_for(
            dataclasses.replace(program(name), limits=limits), lambda: None
        ) as job:
            return job

    java, python = work("java"), work("python")
    clock.now_s = 1000
    work("other")
    assert work("java") is java
    assert work("python") is not python
    for name in ("java", "python", "other"):
        worker.release_job(name)
