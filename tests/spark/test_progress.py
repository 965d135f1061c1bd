"""The progress line: what it says, when it keeps silent, and what it leaves behind."""

import contextlib
import io
import os
import pty
import threading
from typing import Any

import pytest

from beam_spark_runner.spark.session import progress
from beam_spark_runner.spark.session.progress import Counts, ProgressLine
from tests.harness.processes import wait_for


class Seen:
    """A watch whose counts the test sets; ``asked`` tells it that it was looked at."""

    def __init__(self, counts: Counts | BaseException | None) -> None:
        self.counts = counts
        self.asked = threading.Semaphore(0)
        self.is_closed = False

    def look(self) -> Counts | None:
        self.asked.release()
        if isinstance(self.counts, BaseException):
            raise self.counts
        return self.counts

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_FIRST_AFTER_S", "_EVERY_S", "_EVERY_S_IN_A_LOG"):
        monkeypatch.setattr(progress, name, 0.01)


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        pytest.param(None, "segment 2 of 3", id="between two jobs"),
        pytest.param(
            Counts(1, 2, 5, 8), "segment 2 of 3 · Spark stages 1/2 · tasks 5/8", id="Connect"
        ),
        pytest.param(
            Counts(1, 2, 5, 8, 12345),
            "segment 2 of 3 · Spark stages 1/2 · tasks 5/8 · 12,345 elements exchanged",
            id="classic",
        ),
    ],
)
def test_text(counts: Counts | None, text: str) -> None:
    line = ProgressLine(None, 3, io.StringIO())
    assert line.text(counts) == "starting" + text.removeprefix("segment 2 of 3")
    line.enter(2)
    assert line.text(counts) == text


def test_elements_stay_when_the_job_that_counted_them_has_ended() -> None:
    line = ProgressLine(None, 1, io.StringIO())
    line.enter(1)
    line.text(Counts(0, 1, 0, 1, 7))
    assert line.text(None) == "segment 1 of 1 · 7 elements exchanged"


def test_what_is_deferred_is_shown() -> None:
    waiting = [0]
    line = ProgressLine(None, 1, io.StringIO(), residuals=lambda: waiting[0])
    line.enter(1)
    assert line.text(None) == "segment 1 of 1"
    waiting[0] = 1_234
    assert line.text(None) == "segment 1 of 1 · 1,234 deferred"


def test_what_tasks_have_told_is_shown() -> None:
    line = ProgressLine(None, 1, io.StringIO(), elements=lambda: 12_345)
    line.enter(1)
    assert line.text(None) == "segment 1 of 1 · 12,345 elements processed"


def test_a_streaming_pipeline_has_a_text_of_its_own() -> None:
    out = io.StringIO()
    line = ProgressLine(None, 0, out, text=lambda: "epoch 7")
    assert line.text(None) == "epoch 7"
    line.start()
    wait_for(lambda: out.getvalue())
    line.close()
    assert out.getvalue() == "epoch 7 · 0:00\n"


def on_a_terminal(seen: Any) -> bytes:
    """Let a line be drawn at least twice on a real terminal, and return all that it received."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        line = ProgressLine(seen, 1, terminal, clock=lambda: 3725.0)
        line._began = 0.0
        line.start()
        line.enter(1)
        for _ in range(3):
            assert seen.asked.acquire(timeout=30)
        line.close()
    assert seen.is_closed
    received = b""
    with contextlib.suppress(OSError):  # how the end of a terminal is told
        while part := os.read(ours, 1 << 16):
            received += part
    os.close(ours)
    return received


def test_a_terminal_is_left_clean() -> None:
    received = on_a_terminal(Seen(Counts(0, 1, 0, 1))).decode()
    assert "\r\x1b[Ksegment 1 of 1 · Spark stages 0/1 · tasks 0/1 · 1:02:05\r" in received
    assert received.endswith("\r\x1b[K")
    assert "\n" not in received


def test_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    received = on_a_terminal(Seen(Counts(0, 1, 0, 1))).decode()
    assert "\r\x1b[Ksegment 1 of 1 · Sp\r" in received


def test_a_watch_that_fails_disturbs_nothing() -> None:
    received = on_a_terminal(Seen(RuntimeError("no JVM"))).decode()
    assert "segment 1 of 1 · 1:02:05" in received


def test_a_pipeline_that_is_quick_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_FIRST_AFTER_S", 1000.0)
    monkeypatch.setattr(progress, "_EVERY_S_IN_A_LOG", 1000.0)
    out = io.StringIO()
    line = ProgressLine(None, 1, out)
    line.start()
    line.close()
    assert out.getvalue() == ""


def test_a_log_gets_a_line_for_each_change() -> None:
    out, seen = io.StringIO(), Seen(Counts(0, 1, 0, 2))
    line = ProgressLine(seen, 1, out)
    line.enter(1)
    line.start()
    for _ in range(3):
        assert seen.asked.acquire(timeout=30)
    seen.counts = Counts(0, 1, 1, 2)
    for _ in range(3):
        assert seen.asked.acquire(timeout=30)
    line.close()
    assert [text.rpartition(" · ")[0] for text in out.getvalue().splitlines()] == [
        "segment 1 of 1 · Spark stages 0/1 · tasks 0/2",
        "segment 1 of 1 · Spark stages 0/1 · tasks 1/2",
    ]


def test_a_closed_stream_disturbs_nothing() -> None:
    out = io.StringIO()
    line, seen = ProgressLine(Seen(None), 1, out), Seen(None)
    out.close()
    line = ProgressLine(seen, 1, out)
    line.start()
    assert seen.asked.acquire(timeout=30)
    line.close()


def test_no_progress_on_a_client_that_has_no_handlers() -> None:
    assert progress.watch(object(), "tag", is_connect=True) is None


class Client:
    def __init__(self) -> None:
        self.handlers: list[Any] = []

    def registerProgressHandler(self, handler: Any) -> None:
        self.handlers.append(handler)

    def removeProgressHandler(self, handler: Any) -> None:
        self.handlers.remove(handler)


def test_the_counts_of_a_connect_server() -> None:
    reason = "Spark Connect 3.5 does not tell how far it is"
    spark = pytest.importorskip("pyspark.sql.connect.shell.progress", reason=reason)
    client = Client()
    seen_by = progress.watch(client, "tag", is_connect=True)
    assert seen_by is not None
    (handle,) = client.handlers
    assert seen_by.look() is None
    stages = [spark.StageInfo(1, 2, 2, 0, True), spark.StageInfo(2, 4, 1, 0, False)]
    handle(stages=stages, inflight_tasks=1, operation_id="o", done=False)
    assert seen_by.look() == Counts(1, 2, 3, 6)
    handle(stages=stages, inflight_tasks=0, operation_id="o", done=True)
    assert seen_by.look() is None
    seen_by.close()
    assert client.handlers == []
