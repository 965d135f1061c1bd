"""The progress line: what it shows, what remains, and what it leaves behind."""

import contextlib
import io
import logging
import os
import pty
import threading
from collections.abc import Callable

import pytest

from beam_spark_runner.job.watching import progress_line
from beam_spark_runner.job.watching.progress_line import LoggedLine, Parts, ProgressLine


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_EVERY_S", "_EVERY_S_IN_A_FILE", "_EVERY_S_IN_A_LOG"):
        monkeypatch.setattr(progress_line, name, 0.01)
    monkeypatch.delenv("COLUMNS", raising=False)


class Asked:
    """What a pipeline says; counts how often it is asked."""

    def __init__(self, *parts: str, error: BaseException | None = None) -> None:
        self.parts, self._error = parts, error
        self._asked = threading.Semaphore(0)

    def __call__(self) -> Parts:
        self._asked.release()
        if self._error is not None:
            raise self._error
        return self.parts

    def wait(self, times: int = 3) -> None:
        for _ in range(times):
            assert self._asked.acquire(timeout=30)


def on_a_terminal(use: Callable[[ProgressLine], None], *, encoding: str = "utf-8") -> str:
    """Use a line on a real terminal; return all that it received."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w", encoding=encoding) as terminal:
        line = ProgressLine(terminal, 0.0, clock=lambda: 3725.0)
        use(line)
        line.close()
    received = b""
    with contextlib.suppress(OSError):  # how the end of a terminal is told
        while part := os.read(ours, 1 << 16):
            received += part
    os.close(ours)
    return received.decode(encoding)


def shown(asked: Asked) -> Callable[[ProgressLine], None]:
    def use(line: ProgressLine) -> None:
        line.show(asked)
        asked.wait()

    return use


def test_a_terminal_is_left_clean() -> None:
    received = on_a_terminal(shown(Asked("starting Spark", "more")))
    assert received.startswith("\r\x1b[K1:02:05 · starting Spark · more\r")
    assert received.endswith("\r\x1b[K")
    assert "\n" not in received


def test_the_line_is_there_before_anything_else_happens() -> None:
    """It is drawn by the thread that shows it, which may be busy for long after that."""
    received = on_a_terminal(lambda line: line.show(lambda: ["starting Spark"]))
    assert received.startswith("\r\x1b[K1:02:05 · starting Spark\r")


def test_lines_that_remain_take_the_place_of_the_line() -> None:
    def use(line: ProgressLine) -> None:
        line.show(lambda: ["epoch 1"])
        line.say("continues after epoch 24", "from there")
        line.close()
        line.say("DONE in 1:02:05")

    received = on_a_terminal(use)
    assert "\r\x1b[Kcontinues after epoch 24 · from there\r\n\r\x1b[K1:02:05 · epoch 1" in received
    assert received.endswith("\r\x1b[KDONE in 1:02:05\r\n")


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ("40", "1:02:05 · reading · 1,000 of 2,000 read"),
        ("39", "1:02:05 · reading"),
        ("17", "1:02:05 · readi…"),
        ("5", "1:02:05"),
    ],
)
def test_a_line_is_shortened_for_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: str, text: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    received = on_a_terminal(shown(Asked("reading", "1,000 of 2,000 read")))
    assert f"\r\x1b[K{text}\r" in received


def test_a_terminal_that_shows_ascii_only() -> None:
    received = on_a_terminal(shown(Asked("▕██░░▏ 50%", "Groß")), encoding="ascii")
    assert "1:02:05 - [##..] 50% - Gro?" in received


def test_an_error_of_a_part_leaves_the_line_shown() -> None:
    asked = Asked(error=RuntimeError("no JVM"))

    def use(line: ProgressLine) -> None:
        line.show(lambda: ["starting"])
        shown(asked)(line)

    assert "1:02:05 · starting" in on_a_terminal(use)


def test_a_file_gets_a_line_for_each_change() -> None:
    out, asked = io.StringIO(), Asked("one")
    line = ProgressLine(out, 0.0, clock=lambda: 3.0)
    line.show(asked)
    asked.wait()
    asked.parts = ("two",)
    asked.wait()
    line.close()
    line.say("DONE in 0:03")
    assert out.getvalue() == "0:03 · one\n0:03 · two\nDONE in 0:03\n"


def test_a_closed_stream_disturbs_nothing() -> None:
    out, asked = io.StringIO(), Asked("one")
    out.close()
    line = ProgressLine(out, 0.0)
    line.show(asked)
    asked.wait()
    line.close()
    line.say("DONE")


def test_a_log_gets_a_line_for_each_change(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "beam_spark_runner.progress")
    asked = Asked("one")
    line = LoggedLine(0.0, clock=lambda: 65.0)
    line.show(asked)
    asked.wait()
    line.close()
    line.say("DONE in 1:05", "4 Spark jobs")
    assert caplog.messages == ["1:05 · one", "DONE in 1:05 · 4 Spark jobs"]
