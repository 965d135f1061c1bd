"""Streaming pipelines on a cluster that lose Python workers and executors."""

import functools
import logging
import os
import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from integration.cluster import QUICK, Cluster, wait_for_executors
from integration.left_reads import InFlight, continued
from integration.pipelines import counters
from integration.running import run_on
from integration.stream_kills import IN_TASKS, StreamStrikes, check_leftovers
from integration.streams import SINK, check_files, expected_counters, played, sources_to_files
from integration.strikes import ON_CLUSTERS, Event, Strikes, Victim, kill
from integration.waiting import newest_epoch, wait_until
from tests.segments import cut_at_each_exchange
from tests.spark.asking import Asking
from tests.state_store.servers import RedisServer, redis_server

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

COUNT = 16
KILLS = int(os.environ.get("STREAM_KILLS", "24"))
PLACES = 3
EACH = PLACES + 1
"""Kills in a run: by a step in each place, and one at a random moment."""


@pytest.fixture(scope="module")
def session(cluster: Cluster) -> Iterator[Any]:
    """A session in which executors die often, and of which nothing is left."""
    with cluster.session("streams", QUICK) as session:
        yield session
    wait_until(
        lambda: not cluster.processes() and not cluster.local_files(),
        "the end of executors, of their workers, and of their files",
    )


@pytest.mark.parametrize("number", range(-(-KILLS // (2 * EACH))))
def test_kills_cost_nothing(
    cluster: Cluster,
    session: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    """Which processes die, at which events of their tasks, is chance's.

    Every other time each exchange has a Spark job of its own.
    """
    if number % 2:
        cut_at_each_exchange(monkeypatch)
    run_with_kills(cluster, session, tmp_path, caplog, number)


@pytest.mark.parametrize("number", range(-(-KILLS // (2 * EACH))))
def test_kills_cost_nothing_in_a_state_store(
    cluster: Cluster,
    session: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    """In every second run on average, the server is killed, too, and comes back without data."""
    if number % 2:
        cut_at_each_exchange(monkeypatch)
    with redis_server(tmp_path) as server:
        run_with_kills(cluster, session, tmp_path, caplog, number, server)
        assert server.client().keys("*") == []


@pytest.mark.parametrize("number", range(-(-KILLS // (2 * EACH))))
def test_kills_cost_nothing_while_reads_are_left(
    cluster: Cluster,
    session: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    """Epochs leave reads of the declarative step for the next one; the server is killed, too."""
    if number % 2:
        cut_at_each_exchange(monkeypatch)
    left = tmp_path / "left"
    left.mkdir()
    with redis_server(tmp_path) as server:
        run_with_kills(cluster, session, tmp_path, caplog, number, server, left)
        assert server.client().keys("*") == []
    assert continued(left)


@pytest.mark.parametrize("number", range(-(-KILLS // (2 * EACH))))
def test_kills_in_the_middle_of_a_declarative_step_cost_nothing(
    cluster: Cluster, session: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    """At each event of tasks that continue reads, one executor dies, or only a worker."""
    left = tmp_path / "left"
    left.mkdir()
    victims = [*ON_CLUSTERS, Victim.OWN_EXECUTOR]
    in_flight = [
        Strikes(str(tmp_path / f"killed-{event.name}"), event, victims[(number + each) % 4])
        for each, event in enumerate(InFlight)
    ]
    with redis_server(tmp_path) as server:
        run_with_kills(cluster, session, tmp_path, caplog, number, server, left, in_flight)
        assert server.client().keys("*") == []
    assert continued(left)


def run_with_kills(
    cluster: Cluster,
    session: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    number: int,
    server: RedisServer | None = None,
    left: Path | None = None,
    in_flight: Sequence[Strikes] = (),
) -> None:
    """Run a pipeline that loses processes.

    Args:
        cluster: on which the session runs.
        session: to run in.
        tmp_path: an empty folder.
        caplog: what the runner logs, which is printed.
        number: chooses.
        server: the state store. None: there is none. With one, the pipeline has a declarative step.
        left: see ``KnowsNumbers``. None: epochs leave no reads.
        in_flight: the strikes in the declarative step. If there are any, there are no others.
    """
    caplog.set_level(logging.WARNING)
    wait_for_executors(session)
    chance = random.Random(number)
    out, checkpoints = tmp_path / "out", tmp_path / "checkpoints"
    out.mkdir()
    markers = [tmp_path / f"killed-{place}" for place in range(PLACES)]
    strikes: list[Strikes] = [
        # Later steps get one element in a bundle.
        StreamStrikes(
            str(marker),
            chance.choice(IN_TASKS),
            chance.choice(ON_CLUSTERS),
            chance.randrange(1, 4) if marker is markers[0] else 1,
        )
        for marker in markers
    ]
    if in_flight:
        strikes = [StreamStrikes(os.devnull, Event.START, Victim.WORKER) for _ in range(PLACES)]
        markers = [Path(each.marker) for each in in_flight]
    print(*strikes, *in_flight, sep="\n")
    killer = threading.Thread(
        target=functools.partial(kill_at_random, cluster, checkpoints, chance, server), daemon=True
    )
    killer.start()
    result = run_on(
        Asking(session, stable=[SINK]),
        lambda p: sources_to_files(
            p,
            COUNT,
            str(out),
            strikes,
            # Else a source may have all of a window in one epoch, and no read waits.
            pairs=played(COUNT) if in_flight else None,
            is_declared=server is not None,
            left="" if left is None else str(left),
            in_flight=in_flight,
        ),
        f"--checkpoint_dir={checkpoints}",
        f"--temp_location={tmp_path / 'temp'}",
        "--batch_interval_millis=100",
        *([] if server is None else [f"--state_store={server.url}"]),
        *([] if left is None else ["--unaligned_state_requests"]),
    )
    killer.join(60)
    for text in caplog.messages:
        print("   ", text.replace("\n", " ")[-250:])
    assert not killer.is_alive()
    assert not [marker.name for marker in markers if not marker.exists()]
    check_files(out, COUNT)
    assert counters(result) == expected_counters(COUNT, is_declared=server is not None)
    check_leftovers(checkpoints)


def kill_at_random(
    cluster: Cluster, checkpoints: Path, chance: random.Random, server: RedisServer | None
) -> None:
    """Kill an executor or a Python worker once a random epoch of the first few is committed.

    Every second time on average, the state store is killed before it, and comes back without data.
    """
    epoch = chance.randrange(1, 6)
    wait_until(lambda: newest_epoch(checkpoints) >= epoch, f"epoch {epoch}")
    wait_until(lambda: bool(cluster.processes()), "an executor")
    victim = chance.choice(cluster.processes())
    if server is not None and chance.random() < 0.5:
        print("at random: the state store")
        server.kill()
        server.start()
    print("at random:", victim)
    kill(victim)
