"""Whoever reads what a Spark job has kept reads one attempt of each of its tasks."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.cluster import CHECKSUMS, QUICK, SLOTS, Cluster, wait_for_executors
from integration.faults import Director, Watched, keep_two_copies, leave_zombies
from integration.kills import run_with_a_kill
from integration.pipelines import read_both_ways
from integration.running import run
from integration.strikes import Event
from tests.harvest import SPREAD

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

_TRIES = 5


@pytest.fixture(scope="module")
def session(cluster: Cluster) -> Iterator[Any]:
    """Without Spark's own defence, and with second attempts at what stands still."""
    conf = {
        "spark.checkpoint.local.verifyChecksum.enabled": "false",
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.quantile": "1.0",
        # In stages of as many tasks as one executor has slots, which are then gated.
        "spark.speculation.task.duration.threshold": "2s",
        **QUICK,
    }
    with cluster.session("faults", conf) as session:
        yield session


@pytest.mark.parametrize("script", [keep_two_copies, leave_zombies])
@pytest.mark.parametrize("with_exchange", [False, True], ids=["in place", "after an exchange"])
def test_readers_of_rows_that_two_attempts_have_kept(
    session: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    with_exchange: bool,
    script: Any,
) -> None:
    caplog.set_level(logging.WARNING)
    tasks = SLOTS // 2 if script is keep_two_copies else SLOTS

    def run_in(folder: Path) -> None:
        folder.mkdir()
        wait_for_executors(session)
        director, watched = Director(folder, session), Watched(str(folder), [Event.RESULT])
        with director.directing(lambda each: script(each, tasks)):
            run(
                session,
                lambda p: read_both_ways(p, 400, watched, with_exchange=with_exchange),
                SPREAD,
                f"--parallelism={tasks}",
                *(f"--spark_conf={key}=false" for key in CHECKSUMS),
            )

    for number in range(_TRIES):
        run_in(tmp_path / str(number))
        # Spark may end the second attempts before their rows are stored.
        if script is leave_zombies or any(
            "other attempts' rows" in each for each in caplog.messages
        ):
            return
    raise AssertionError(caplog.messages)


@pytest.mark.parametrize("number", range(int(os.environ.get("KILLS", "24"))))
def test_a_kill_costs_no_element(
    cluster: Cluster, session: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    run_with_a_kill(cluster, session, tmp_path, caplog, number)
