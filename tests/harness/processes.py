"""Waiting for processes, and ports for them."""

import contextlib
import random
import socket
import time
from collections.abc import Callable
from typing import Any

import psutil


def wait_for(condition: Callable[[], Any], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def lasting_port() -> int:
    """Return a free port of the loopback device for one server after another.

    No connection takes it between two servers: the ports of connections are 32768 and above.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port
