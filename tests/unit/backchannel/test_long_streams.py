"""What the backchannel of a stream needs that continues for long, or whose user code blocks."""

import threading
from pathlib import Path

import pytest

from beam_spark_runner._generated.backchannel_pb2 import TaskProgress
from beam_spark_runner.backchannel import worker
from beam_spark_runner.backchannel.worker import Backchannel
from tests.unit.backchannel.served import Callbacks, Heard, entry, messages, serving, until


def test_callbacks_of_a_rejected_attempt_are_dropped_when_a_later_epoch_is_accepted(
    tmp_path: Path,
) -> None:
    """A stream may continue for years: they hold steps, or SDK harnesses."""
    void, kept, later, batch = Callbacks(), Callbacks(), Callbacks(), Callbacks()
    with serving("socket", tmp_path, []) as server:
        channel = Backchannel(server.route)
        channel.hold(1, [void], epoch=4)
        channel.hold(2, [kept], epoch=4)
        channel.hold(3, [batch])
        server.accept(channel.worker, [2])
        until(lambda: kept.happened == ["run"])
        assert void.happened == []  # the same epoch: its partition may be another one
        channel.hold(4, [later], epoch=5)
        server.accept(channel.worker, [4])
        until(lambda: later.happened == ["run"])
        until(lambda: void.happened == ["dropped"])
        assert batch.happened == []
        channel.close()


def test_log_lines_do_not_wait_for_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that blocks has the lock of its tracker, which is asked how far it is."""
    monkeypatch.setattr(worker, "LOOK_EVERY_S", 0.01)
    heard: Heard = []
    asked, goes_on = threading.Event(), threading.Event()

    def look() -> TaskProgress:
        asked.set()
        goes_on.wait(60)
        return TaskProgress()

    with serving("socket", tmp_path, heard) as server:
        channel = Backchannel(server.route)
        with channel.watching(1, look):
            assert asked.wait(60)
            channel.log(entry("still here"))
            until(lambda: messages(heard) == ["still here"])
            goes_on.set()
        channel.close()
