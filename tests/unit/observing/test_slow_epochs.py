"""Epochs that take far longer than they should."""

from beam_spark_runner.observing.epoch_status import EpochStatus
from beam_spark_runner.observing.slow_epochs import SlowEpochs

SECOND_US = 1_000_000


def epoch(took_s: float, budget_s: float = 1) -> EpochStatus:
    return EpochStatus(
        epoch=1, took_us=round(took_s * SECOND_US), budget_us=round(budget_s * SECOND_US)
    )


def slow(interval_us: int = SECOND_US) -> SlowEpochs:
    """Return what has seen the first epoch, which starts what all epochs need."""
    found = SlowEpochs(interval_us)
    assert not found.is_slow(epoch(1_000))
    return found


def test_ten_times_the_interval() -> None:
    epochs = slow()
    assert not epochs.is_slow(epoch(9.9))
    assert epochs.is_slow(epoch(10))


def test_the_next_one_takes_twice_as_long() -> None:
    epochs = slow()
    assert epochs.is_slow(epoch(12))
    assert not epochs.is_slow(epoch(23))
    assert epochs.is_slow(epoch(24))


def test_the_budget_that_a_backlog_has_got_is_no_delay() -> None:
    epochs = slow()
    assert not epochs.is_slow(epoch(60, budget_s=52))
    assert epochs.is_slow(epoch(62, budget_s=52))


def test_an_interval_that_no_spark_job_keeps() -> None:
    epochs = slow(1_000)
    assert not epochs.is_slow(epoch(0.5, budget_s=0.001))
    assert epochs.is_slow(epoch(1, budget_s=0.001))
