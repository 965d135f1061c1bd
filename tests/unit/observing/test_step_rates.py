"""Elements per second, while the thread that counts them continues."""

import sys
import threading
from collections.abc import Iterator

import pytest

from beam_spark_runner.observing.step_rates import StepRates

_READS = 100_000


@pytest.fixture
def _threads_switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_threads_switch_often")
def test_rates_may_be_read_while_counts_are_noted() -> None:
    rates, is_over = StepRates(), threading.Event()
    noted_s = 0

    def note() -> None:
        nonlocal noted_s
        while not is_over.is_set():
            noted_s += 1
            rates.note({"Read": 3 * noted_s}, float(noted_s))

    notes = threading.Thread(target=note)
    notes.start()
    try:
        for _ in range(_READS):
            rates.per_second(5.0)
    finally:
        is_over.set()
        notes.join()
    rates.note({"Read": 3 * noted_s + 30}, noted_s + 10.0)
    assert rates.per_second(noted_s + 10.0) == {"Read": 3.0}
