"""The end of a gRPC server, when gRPC does not report it."""

import logging
import threading
from concurrent.futures import Executor, ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from beam_spark_runner.harness.fn_api import serving


def test_a_server_of_whose_end_nobody_is_told_is_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(serving, "_MAX_STOP_S", 0.01)
    serving.stop_serving(SimpleNamespace(stop=lambda grace: threading.Event()), Executor())
    (record,) = caplog.records
    assert record.levelno == logging.INFO


def test_one_that_ends_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    ended = threading.Event()
    ended.set()
    serving.stop_serving(SimpleNamespace(stop=lambda grace: ended), Executor())
    assert not caplog.records


def test_idle_threads_end_with_the_server() -> None:
    ended = threading.Event()
    ended.set()
    threads = ThreadPoolExecutor(thread_name_prefix="of the server")
    threads.submit(int).result()
    (thread,) = (each for each in threading.enumerate() if each.name.startswith("of the server"))
    serving.stop_serving(SimpleNamespace(stop=lambda grace: ended), threads)
    thread.join(60)
    assert not thread.is_alive()
