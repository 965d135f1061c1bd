"""What is wanted of a job that runs."""

import threading
import time
from collections.abc import Callable

import pytest

from beam_spark_runner.job.run.control import JobControl

LONG_S = 60.0


@pytest.mark.parametrize("want", [JobControl.cancel, JobControl.drain])
def test_a_cancel_or_drain_ends_a_sleep(want: Callable[[JobControl], None]) -> None:
    control = JobControl()
    began_s = time.monotonic()
    threading.Timer(0.05, want, [control]).start()
    control.sleep(LONG_S)
    assert time.monotonic() - began_s < LONG_S / 2
    assert control.is_cancelled != control.sees_drain()


def test_what_the_sleeper_knows_does_not_end_its_sleep() -> None:
    control = JobControl()
    control.drain()
    began_s = time.monotonic()
    control.sleep(LONG_S)  # it has not asked
    assert time.monotonic() - began_s < LONG_S / 2
    assert control.sees_drain()
    began_s = time.monotonic()
    control.sleep(0.1)
    assert time.monotonic() - began_s >= 0.1


def test_only_the_end_of_the_job_ends_a_wait() -> None:
    control = JobControl()
    control.drain()  # the waiter has not asked
    began_s = time.monotonic()
    control.wait(0.1)
    assert time.monotonic() - began_s >= 0.1
    threading.Timer(0.05, control.cancel).start()
    control.wait(LONG_S)
    assert time.monotonic() - began_s < LONG_S / 2
