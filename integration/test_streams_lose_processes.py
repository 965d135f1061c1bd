"""Streaming pipelines on a cluster that lose a Python worker or an executor, once in each run."""

import logging
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.cluster import QUICK, Cluster, wait_for_executors
from integration.faults import Event, Strikes, Victim
from integration.pipelines import counters
from integration.running import run
from integration.streams import KEYS, files_of_sources, sources_to_files
from tests.segments import cut_at_each_exchange

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

COUNT = 16


@pytest.fixture(scope="module")
def session(cluster: Cluster) -> Iterator[Any]:
    """A session in which executors die often."""
    with cluster.session("streams", QUICK) as session:
        yield session


@pytest.mark.parametrize("number", range(int(os.environ.get("KILLS", "24")) // 3))
def test_a_kill_costs_nothing(
    session: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    """Which process dies, in which step, at which of its tasks' events, is chance's.

    Every other time each exchange has a Spark job of its own.
    """
    if number % 2:
        cut_at_each_exchange(monkeypatch)
    caplog.set_level(logging.WARNING)
    wait_for_executors(session)
    chance = random.Random(number)
    event, victim = chance.choice([*Event]), chance.choice([*Victim])
    place, nth = chance.randrange(3), chance.randrange(1, 4)
    print(event, victim, place, nth)
    marker, out, checkpoints = (tmp_path / name for name in ("killed", "out", "checkpoints"))
    out.mkdir()
    strikes: list[Any] = [None, None, None]
    # Later steps get one element in a bundle.
    strikes[place] = Strikes(str(marker), event, victim, nth if place == 0 else 1)
    result = run(
        session,
        lambda p: sources_to_files(p, COUNT, str(out), strikes),
        f"--checkpoint_dir={checkpoints}",
        f"--temp_location={tmp_path / 'temp'}",
        "--batch_interval_millis=100",
    )
    assert marker.exists()
    assert {path.name for path in out.iterdir()} == files_of_sources(COUNT)
    assert counters(result) == {"elements": KEYS * COUNT}
    left = {path.name for path in checkpoints.iterdir()}
    needed = re.compile(r".*\.(manifest|fence|delta|view)")
    assert not {name for name in left if not needed.fullmatch(name)}
    assert sum(name.endswith(".manifest") for name in left) <= 3
