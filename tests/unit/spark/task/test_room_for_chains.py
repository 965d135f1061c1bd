"""Threads that have room for very many steps, each of which calls the next one."""

import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from beam_spark_runner.spark.task.deep_chains import room_for


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
def test_two_thousand_steps() -> None:
    assert started_with_room(2_000, lambda: descend(10_000)) == []


def test_endless_recursion_is_still_an_error() -> None:
    def endless() -> None:
        endless()

    (error,) = started_with_room(2_000, endless)
    assert isinstance(error, RecursionError)


def test_few_steps_change_nothing() -> None:
    limit = sys.getrecursionlimit()
    assert started_with_room(40, lambda: None) == []
    assert sys.getrecursionlimit() == limit
