"""Workers that Spark ends while their siblings need what they host."""

import importlib
import io
import sys
import threading
from dataclasses import replace
from multiprocessing.connection import Listener
from typing import Any

import pytest
from apache_beam.utils import multi_process_shared
from pyspark import worker as pyspark_worker

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.engine.program import BatchPart
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.worker.runtime import WorkerRuntime, worker
from beam_spark_runner.harness.beam.shared_objects import hosts_shared_objects
from beam_spark_runner.harness.remote.sdk_harnesses import sdk_harnesses
from beam_spark_runner.spark.worker import level_tasks
from beam_spark_runner.spark.worker.hosting import stay_while_hosting, waiting_before_end
from tests.unit.engine.task.epochs_of_tasks import Tells, programs_in, rows_of
from tests.unit.engine.worker.test_worker_runtime import Job


def is_told_to_end(infile: Any, outfile: Any) -> None:
    """PySpark's main function when Spark has closed the worker's socket."""
    raise SystemExit(-1)


@pytest.fixture(params=["an object", "a harness"])
def hosts(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """This process hosts an object, or a harness with whose end others would end."""
    if request.param == "a harness":
        monkeypatch.setattr(sdk_harnesses, "must_stay", lambda job_id=None: True)
        return
    manager = multi_process_shared._SingletonManager()
    manager.entries = {"model": object()}
    monkeypatch.setattr(multi_process_shared, "_process_level_singleton_manager", manager)


def end(runtime: WorkerRuntime) -> threading.Thread:
    """Have Spark end this worker, in a thread."""

    def run() -> None:
        with pytest.raises(SystemExit):
            waiting_before_end(is_told_to_end, runtime.wait_for_ends)(io.BytesIO(), io.BytesIO())

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_host_stays_until_its_job_has_ended(hosts: None) -> None:
    job, runtime = Job("hosting"), WorkerRuntime()
    with runtime.working_for(job.program, lambda: None):
        pass
    ending = end(runtime)
    assert job.asked_for_its_end.wait(60)
    assert ending.is_alive()
    job.end()  # the worker has answered
    ending.join(60)
    assert not ending.is_alive()


def test_a_host_ends_when_its_driver_has_gone(hosts: None) -> None:
    job, runtime = Job("gone"), WorkerRuntime()
    with runtime.working_for(job.program, lambda: None):
        pass
    ending = end(runtime)
    assert job.asked_for_its_end.wait(60)
    job.server.close()
    ending.join(60)
    assert not ending.is_alive()


def test_other_workers_end_at_once() -> None:
    job, runtime = Job("not hosting"), WorkerRuntime()
    with runtime.working_for(job.program, lambda: None):
        pass
    end(runtime).join(60)
    assert not job.asked_for_its_end.is_set()
    job.server.close()


def test_tasks_that_succeed_are_followed_by_others(hosts: None) -> None:
    def waits() -> None:
        raise AssertionError("the worker has not been told to end")

    assert waiting_before_end(lambda infile, outfile: "a result", waits)(io.BytesIO(), io.BytesIO())


def test_a_process_hosts_shared_objects_while_they_are_acquired(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    shared = multi_process_shared.MultiProcessShared(list, "who hosts", path=str(tmp_path))
    with monkeypatch.context() as context:
        context.delitem(sys.modules, multi_process_shared.__name__)
        assert not hosts_shared_objects()
    manager = multi_process_shared._process_level_singleton_manager
    monkeypatch.setattr(type(manager), "entries", {})
    assert not hosts_shared_objects()
    held = shared.acquire()
    assert hosts_shared_objects()
    shared.release(held)


def test_the_function_of_each_task_is_wrapped_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark_worker, "main", is_told_to_end)
    for _ in range(2):
        stay_while_hosting(lambda: None)
    assert vars(pyspark_worker.main)["__wrapped__"] is is_told_to_end


@pytest.mark.parametrize("name", ["__main__", "pyspark.daemon"])
def test_a_daemon_with_a_name_of_its_own_for_the_function(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module(name)
    monkeypatch.setattr(pyspark_worker, "main", is_told_to_end)
    monkeypatch.setattr(module, "worker_main", is_told_to_end, raising=False)
    for _ in range(2):
        stay_while_hosting(lambda: None)
    assert vars(module)["worker_main"] is pyspark_worker.main


@pytest.mark.parametrize("kind", ["level", "segment", "requests"])
def test_each_task_has_its_worker_stay(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(pyspark_worker, "main", is_told_to_end)
    programs = programs_in(tmp_path, Tells(), job="staying")
    rows = rows_of(programs, reports_pb2.Epoch(number=1, clock_stands=True), 1)
    run = {
        "level": lambda: level_tasks.run_level(programs[0], iter(rows)),
        "segment": lambda: level_tasks.run_segment(
            [replace(programs[0], batch=BatchPart(driver_rows=schema.coded_batches(rows)))],
            iter([]),
            0.0,
        ),
        "requests": lambda: level_tasks.serve_driver(str(tmp_path / "driver"), 1.0, 1.0, iter([])),
    }
    with Listener(str(tmp_path / "driver"), "AF_UNIX") as driver:
        if kind == "requests":  # the driver asks for none
            threading.Thread(target=lambda: driver.accept().close(), daemon=True).start()
        try:
            emitted = list(run[kind]())
        finally:
            worker.end_job("staying", 60)
    assert bool(emitted) == (kind != "requests")
    assert vars(pyspark_worker.main)["__wrapped__"] is is_told_to_end
