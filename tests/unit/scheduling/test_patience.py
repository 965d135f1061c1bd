"""How long work is repeated while storage does not work."""

import pytest

from beam_spark_runner.core.errors import CheckpointStorageError
from beam_spark_runner.scheduling.patience import retry_while_unavailable

STORAGE = CheckpointStorageError("/checkpoints", "it is full")


class Time:
    """A clock that only work and pauses advance, and work that fails some times."""

    def __init__(self, failures: int, takes_s: float) -> None:
        self._failures, self._takes_s = failures, takes_s
        self.now_s = 500.0
        self.pauses: list[float] = []
        self.warnings: list[str] = []

    def work(self) -> str:
        self.now_s += self._takes_s
        self._failures -= 1
        if self._failures >= 0:
            raise STORAGE
        return "done"

    def pause(self, seconds: float) -> None:
        self.now_s += seconds
        self.pauses.append(seconds)

    def outlast(self) -> str:
        return retry_while_unavailable(
            self.work, lambda: self.now_s, self.warnings.append, self.pause
        )


def test_pauses_grow_to_a_quarter_of_a_minute() -> None:
    time = Time(failures=6, takes_s=0)
    assert time.outlast() == "done"
    assert time.pauses == [1, 2, 4, 8, 15, 15]
    assert time.warnings[1] == f"{STORAGE}; trying again in 2 s"


def test_work_that_takes_longer_than_the_patience_is_repeated() -> None:
    time = Time(failures=1, takes_s=200)
    assert time.outlast() == "done"
    assert time.pauses == [1]


def test_two_minutes_after_the_first_failure_the_error_is_raised() -> None:
    time = Time(failures=1_000, takes_s=1)
    with pytest.raises(CheckpointStorageError, match="it is full"):
        time.outlast()
    assert 120 <= time.now_s - 501 < 136
    assert len(time.warnings) == len(time.pauses)


def test_errors_that_are_not_of_storage_are_raised_at_once() -> None:
    def work() -> None:
        raise ValueError("not that")

    with pytest.raises(ValueError, match="not that"):
        retry_while_unavailable(work, lambda: 0.0, pytest.fail, lambda _: pytest.fail("it pauses"))


def test_an_error_of_a_pause_ends_the_retries() -> None:
    def pause(_: float) -> None:
        raise InterruptedError

    time = Time(failures=9, takes_s=0)
    with pytest.raises(InterruptedError):
        retry_while_unavailable(time.work, lambda: time.now_s, time.warnings.append, pause)
