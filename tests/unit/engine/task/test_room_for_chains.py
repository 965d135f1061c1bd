"""Threads that have room for very many steps, each of which calls the next one."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.testing.test_stream import TestStream as Stream

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.engine.task import task
from beam_spark_runner.engine.task.deep_chains import room_for
from beam_spark_runner.engine.worker.runtime import worker
from tests.unit.engine.task.epochs_of_tasks import epoch, programs_of


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    limit, size = sys.getrecursionlimit(), threading.stack_size()
    yield
    assert threading.stack_size() == size
    sys.setrecursionlimit(limit)


def descend(levels: int) -> int:
    """Recurse through a function of C, too, which needs more of the stack than one of Python."""
    return levels and max([levels], key=lambda left: descend(left - 1))


def started_with_room(steps: int, run: Callable[[], object]) -> list[BaseException]:
    errors: list[BaseException] = []

    def catch() -> None:
        try:
            run()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=catch)
    with room_for(steps):
        thread.start()
    thread.join()
    return errors


@pytest.mark.skipif(
    sys.version_info >= (3, 12),
    reason="they limit recursion through C functions apart, and nothing raises that limit",
)
def test_a_chain_of_two_thousand_steps_has_room() -> None:
    assert started_with_room(2_000, lambda: descend(10_000)) == []


def test_endless_recursion_is_still_an_error() -> None:
    def endless() -> None:
        endless()

    (error,) = started_with_room(2_000, endless)
    assert isinstance(error, RecursionError)


def test_few_steps_leave_the_limits_of_the_process() -> None:
    limit = sys.getrecursionlimit()
    assert started_with_room(40, lambda: None) == []
    assert sys.getrecursionlimit() == limit


def test_a_task_has_room_for_all_steps_of_its_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def noted(steps: int) -> contextlib.AbstractContextManager[None]:
        asked.append(steps)
        return room_for(steps)

    monkeypatch.setattr(task, "room_for", noted)

    def build(p: beam.Pipeline) -> None:
        collection = p | Stream(coder=VarIntCoder()).add_elements([1])
        for number in range(50):
            collection |= f"step {number}" >> beam.Map(lambda n: n)

    try:
        begins = reports_pb2.Epoch(number=1, clock_stands=True)
        epoch(programs_of(build, tmp_path, job="chain"), begins, 1)
    finally:
        worker.end_job("chain", 60)
    assert max(asked) >= 50
