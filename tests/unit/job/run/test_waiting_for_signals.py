"""Waiting in the main thread."""

import subprocess
import sys
import threading
import time

import pytest

from beam_spark_runner.job.run.signal_waiting import wait_for

_SIGNAL_IN_ANOTHER_THREAD = """
import os, signal, threading
from beam_spark_runner.job.run.signal_waiting import wait_for

ended = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: ended.set())
waits = threading.Event()
other = threading.Thread(target=waits.wait, daemon=True)
other.start()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # only the other thread can get it
threading.Timer(0.2, lambda: signal.pthread_kill(other.ident, signal.SIGTERM)).start()
print(wait_for(ended))
"""


def test_a_signal_that_another_thread_gets_ends_the_wait() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _SIGNAL_IN_ANOTHER_THREAD],
        stdout=subprocess.PIPE,
        timeout=60,
        check=True,
    )
    assert ended.stdout == b"True\n"


@pytest.mark.parametrize("is_set", [False, True])
def test_a_time_limit_is_kept(is_set: bool) -> None:
    event = threading.Event()
    if is_set:
        event.set()
    began_s = time.monotonic()
    assert wait_for(event, 0.6) is is_set
    assert is_set or time.monotonic() - began_s >= 0.6


def test_an_event_ends_a_wait_without_a_limit() -> None:
    event = threading.Event()
    threading.Timer(0.05, event.set).start()
    assert wait_for(event)
