"""A run in which one process dies, at an event that chance chooses."""

import contextlib
import logging
import random
from pathlib import Path
from typing import Any

import pytest

from integration.cluster import CHECKSUMS, SLOTS, Cluster, wait_for_executors
from integration.faults import Director, Watched, kill_when_kept
from integration.pipelines import Place, read_both_ways
from integration.running import run_spread
from integration.strikes import ON_CLUSTERS, Event, Strikes


def run_with_a_kill(
    cluster: Cluster, session: Any, folder: Path, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    """Run a pipeline that loses a process; its elements must come to all readers, each once.

    The stage and the task are chosen by chance, too; what the stage makes is read twice.

    Args:
        cluster: on which the session runs.
        session: to run in.
        folder: empty.
        caplog: what the runner logs, which is printed.
        number: chooses.
    """
    caplog.set_level(logging.WARNING)
    wait_for_executors(session)
    chance = random.Random(number)
    arguments = [f"--parallelism={chance.choice([SLOTS, SLOTS + 3])}"]
    if chance.random() < 0.5:
        arguments += [f"--spark_conf={key}=false" for key in CHECKSUMS]
    in_files = chance.random() < 0.2
    if in_files:
        arguments.append(f"--temp_location={folder}")
    # When a block is stored, it is known in the driver only.
    event: Event | None = chance.choice([*Event] if in_files else [None, *Event])
    victim, place = chance.choice(ON_CLUSTERS), chance.choice(list(Place))
    with_exchange, as_list = chance.random() < 0.5, chance.random() < 0.5
    nth = chance.randrange(1, 15)
    print(event or "block stored", victim, place, arguments, with_exchange, as_list)
    marker = folder / "killed"
    director = Director(folder, session)

    def pipeline(p: Any) -> None:
        step = Strikes(str(marker), event, victim, nth) if event else Watched(str(folder))
        read_both_ways(p, 400, step, place, with_exchange=with_exchange, as_list=as_list)

    def script(directing: Director) -> None:
        kill_when_kept(directing, lambda: cluster.kill_executor(number))
        marker.touch()

    with contextlib.nullcontext() if event else director.directing(script):
        run_spread(session, pipeline, *arguments)
    assert marker.exists()
    for text in caplog.messages:
        print("   ", text.replace("\n", " ")[-250:])
