"""Spark jobs of earlier starts, whose clients of Spark Connect have died."""

from collections.abc import Iterable
from typing import Any
from unittest import mock

import pytest

from beam_spark_runner.driving.session import Session
from beam_spark_runner.job.run.previous_starts import client_of, end_previous
from beam_spark_runner.recovery.batch_manifest import BatchManifest, work_folder
from beam_spark_runner.recovery.batch_start import SparkClient
from beam_spark_runner.recovery.finishes import Finish
from beam_spark_runner.spark.session.handle import SessionHandle

DEAD = SparkClient("app-1", "theirs", "beam-1")


def session(*, is_connect: bool = True) -> Any:
    made = mock.Mock(spec=SessionHandle, is_connect=is_connect)
    made.application_id.return_value = "app-1"
    made.session_id.return_value = "mine"
    return made


class World:
    """A folder in which tasks finish while a start waits.

    Args:
        tasks: how many there are.
        each_s: after how many seconds each of them finishes, one after another.
    """

    def __init__(self, tasks: int = 0, each_s: float = 1.0) -> None:
        self._tasks, self._each_s = tasks, each_s
        self.now_s = 0.0

    def names(self, folder: str) -> Iterable[str]:
        assert folder == work_folder(6)
        finished = min(self._tasks, int(self.now_s / self._each_s))
        return [Finish(number, self._tasks, 7).record_name for number in range(finished)]

    def remove(self, folder: str) -> None:
        raise AssertionError(folder)

    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    def end(self, session: Session, *previous: SparkClient) -> None:
        start: Any = mock.Mock(previous=previous)
        start.manifest = BatchManifest(commit=5, fence=2, plan="plan")
        end_previous(start, self, session, 30, lambda: self.now_s, self.wait)


@pytest.mark.parametrize(
    ("world", "waited_s"),
    [
        pytest.param(World(), 30, id="nothing is known of the tasks"),
        pytest.param(World(tasks=4), 4, id="all finish in time"),
        pytest.param(World(tasks=4, each_s=20), 30, id="they do not"),
    ],
)
def test_the_next_start_waits_and_then_interrupts(world: World, waited_s: float) -> None:
    mine = session()
    world.end(mine, DEAD, DEAD._replace(session="another"))
    assert world.now_s == waited_s
    assert mine.interrupt.mock_calls == [
        mock.call("theirs", "beam-1"),
        mock.call("another", "beam-1"),
    ]


@pytest.mark.parametrize(
    ("mine", "previous"),
    [
        pytest.param(session(), [], id="nobody has died"),
        pytest.param(session(), [DEAD._replace(application="app-0")], id="another server"),
        pytest.param(session(is_connect=False), [DEAD], id="no client any more"),
        pytest.param(mock.Mock(spec=Session), [DEAD], id="no Spark"),
    ],
)
def test_elsewhere_there_is_nobody_to_wait_for(mine: Any, previous: list[SparkClient]) -> None:
    world = World()
    world.end(mine, *previous)
    assert world.now_s == 0
    assert "interrupt" not in [name for name, *_ in mine.mock_calls]


def test_only_sessions_of_connect_are_clients() -> None:
    assert client_of(session(), "beam-2") == SparkClient("app-1", "mine", "beam-2")
    assert client_of(session(is_connect=False), "beam-2") is None
    assert client_of(mock.Mock(spec=Session), "beam-2") is None
