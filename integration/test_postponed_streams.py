"""Steps with stable input, and with input in the order of time, on a cluster that loses processes.

One process in each run. What is drawn by chance in front of a step with stable input is written by
it to the outside world: several attempts may write an element, but always the same one.
"""

import logging
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.cluster import QUICK, Cluster, wait_for_executors
from integration.pipelines import counters
from integration.postponed_streams import IN_ORDER, KEYS, STABLE, lists_in_order, orders_to_files
from integration.running import run_on
from integration.strikes import ON_CLUSTERS, Event, Strikes
from tests.spark.asking import Asking

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

COUNT = 16


@pytest.fixture(scope="module")
def session(cluster: Cluster) -> Iterator[Any]:
    """A session in which executors die often."""
    with cluster.session("postponed", QUICK) as session:
        yield session


@pytest.mark.parametrize("number", range(int(os.environ.get("KILLS", "24")) // 4))
def test_a_kill_costs_nothing(
    session: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    """Each place is struck; which process dies, and at which event, is chance's."""
    caplog.set_level(logging.WARNING)
    wait_for_executors(session)
    chance = random.Random(number)
    event, victim, place = chance.choice([*Event]), chance.choice(ON_CLUSTERS), number % 3
    print(event, victim, place)
    marker, out, checkpoints = (tmp_path / name for name in ("killed", "out", "checkpoints"))
    out.mkdir()
    strikes: list[Any] = [None, None, None]
    strikes[place] = Strikes(str(marker), event, victim)
    first, second, third = strikes
    result = run_on(
        Asking(session, stable=[STABLE], in_order=[IN_ORDER]),
        lambda p: orders_to_files(p, COUNT, str(out), (first, second, third)),
        f"--checkpoint_dir={checkpoints}",
        f"--temp_location={tmp_path / 'temp'}",
        "--batch_interval_millis=100",
    )
    assert marker.exists()
    written = [path.name.split("_") for path in out.iterdir()]
    assert sorted((key, numbers) for key, numbers, _ in written) == lists_in_order(COUNT)
    assert counters(result) == {"elements": 2 * KEYS * COUNT}
