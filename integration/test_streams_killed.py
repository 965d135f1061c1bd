"""Streaming pipelines whose program is killed, and started again, until they are done."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from integration.driver_programs import start_driver
from integration.killed_driver import PLACES, Kind, Orders
from integration.left_reads import InFlight, continued
from integration.stream_kills import IN_TASKS, Driving, check_leftovers
from integration.streams import check_files, expected_counters
from integration.waiting import newest_epoch
from tests.cli.programs import Ended, Program
from tests.numbers_source import Log
from tests.state_store.servers import RedisServer, redis_server

pytestmark = pytest.mark.timeout(3600)

KILLS = int(os.environ.get("STREAM_KILLS", "24"))
EACH = 3
"""Kills in a test."""
COUNT = 24
PARALLELISMS = (2, 2, 3, 1)
"""Of the runs of a pipeline, in turn: most of them redistribute its state when they start."""
AT_RANDOM = "AT_RANDOM"
MOMENTS = [*(each.name for each in (*Driving, *IN_TASKS)), AT_RANDOM, AT_RANDOM]
MOMENTS_THAT_LEAVE = [*(each.name for each in InFlight), *MOMENTS]
SURELY_LEAVES = Kind.PLAYED
"""Other sources may have all of a window in one epoch on a busy machine, and then no read waits."""


class Runs:
    """One pipeline, and the runs of it that are killed.

    Args:
        folder: for it alone; made.
        kind: of the pipeline.
        state_store: the URL of its state store. None: it has none. With one, the pipeline has a
            declarative step, too.
        leaves: whether epochs leave reads of this step for the next one.
    """

    def __init__(
        self, folder: Path, kind: Kind, state_store: str | None = None, *, leaves: bool = False
    ) -> None:
        self._folder, self._kind, self._state_store = folder, kind, state_store
        self._left = folder / "left" if leaves else None
        if self._left is not None:
            self._left.mkdir(parents=True)
        self._checkpoints, self._out, self._notes = (
            folder / name for name in ("checkpoints", "out", "notes")
        )
        for each in self._out, self._notes:
            each.mkdir(parents=True)
        self._count = 0

    def killed_at(self, moment: str, chance: random.Random) -> Ended:
        """Run the program until it is killed at a moment, or is done."""
        until = newest_epoch(self._checkpoints) + chance.randrange(4)
        program = self._start(moment, chance.randrange(PLACES), chance.randrange(1, 4))
        if moment == AT_RANDOM and program.wait_until(
            lambda: newest_epoch(self._checkpoints) >= until
        ):
            time.sleep(chance.random())  # the moment is chance's, also while Spark starts
            program.send(signal.SIGKILL)
        return program.end(1200)

    def to_the_end(self) -> None:
        """Run the program to its end, if it is not done, and check what all have made."""
        self.check(self._start("", 0, 1).end(1200))

    def check(self, ended: Ended) -> None:
        """Check what all runs have made."""
        assert ended.code == 0, ended.err
        counters = expected_counters(COUNT, is_declared=self._state_store is not None)
        assert ended.out.splitlines()[-1] == str(counters)
        check_files(self._out, COUNT)
        check_leftovers(self._checkpoints)
        if self._left is not None and self._kind is SURELY_LEAVES:
            assert continued(self._left)
        # Callbacks are best effort; none comes before its commit.
        log = Log(folder=str(self._notes), checkpoints=str(self._checkpoints))
        finalized = log.finalized()
        assert all(each.committed > each.committed_at_cut for each in finalized), finalized
        assert bool(log.begun()) is (self._kind is Kind.READERS)

    def _start(self, moment: str, place: int, nth: int) -> Program:
        orders = Orders(
            moment,
            place,
            nth,
            COUNT,
            self._kind.name,
            str(self._out),
            str(self._notes),
            str(self._checkpoints),
            is_declared=self._state_store is not None,
            left="" if self._left is None else str(self._left),
        )
        parallelism = PARALLELISMS[self._count % len(PARALLELISMS)]
        more: tuple[str, ...] = ()
        if self._state_store is not None:
            more = (f"--state_store={self._state_store}",)
            if self._left is not None:
                more += ("--unaligned_state_requests",)
            else:
                parallelism = PARALLELISMS[0]
        self._count += 1
        return start_driver(
            self._folder / f"run-{self._count}",
            orders,
            f"--checkpoint_dir={self._checkpoints}",
            f"--parallelism={parallelism}",
            *more,
        )


@pytest.mark.parametrize("number", range(-(-KILLS // (2 * EACH * len(Kind)))))
@pytest.mark.parametrize(("place", "kind"), [*enumerate(Kind)], ids=[each.name for each in Kind])
def test_kills_of_the_driver_change_nothing(
    tmp_path: Path, place: int, kind: Kind, number: int
) -> None:
    run_with_kills(tmp_path, number * len(Kind) + place, kind)


@pytest.mark.parametrize("number", range(-(-KILLS // (2 * EACH * len(Kind)))))
@pytest.mark.parametrize(("place", "kind"), [*enumerate(Kind)], ids=[each.name for each in Kind])
def test_kills_of_the_driver_change_nothing_in_a_state_store(
    tmp_path: Path, place: int, kind: Kind, number: int
) -> None:
    """Before every second run on average, the server is killed, and comes back without data."""
    with redis_server(tmp_path) as server:
        run_with_kills(tmp_path, number * len(Kind) + place, kind, server)
        assert server.client().keys("*") == []


@pytest.mark.parametrize("number", range(-(-KILLS // (2 * EACH * len(Kind)))))
@pytest.mark.parametrize(("place", "kind"), [*enumerate(Kind)], ids=[each.name for each in Kind])
def test_kills_of_the_driver_change_nothing_while_reads_are_left(
    tmp_path: Path, place: int, kind: Kind, number: int
) -> None:
    """The server is killed, too, and most runs have another number of partitions."""
    with redis_server(tmp_path) as server:
        run_with_kills(tmp_path, number * len(Kind) + place, kind, server, leaves=True)
        assert server.client().keys("*") == []


def run_with_kills(
    tmp_path: Path,
    turn: int,
    kind: Kind,
    server: RedisServer | None = None,
    *,
    leaves: bool = False,
) -> None:
    """Run pipelines that are killed; moments come in turn, elements and epochs by chance."""
    chance = random.Random(turn)
    all_moments, first = MOMENTS, turn * EACH
    if leaves and kind is SURELY_LEAVES:
        all_moments, first = MOMENTS_THAT_LEAVE, turn // len(Kind) * EACH
    moments = [all_moments[(first + each) % len(all_moments)] for each in range(EACH)]
    chance.shuffle(moments)
    jobs = 0
    while moments:
        url = None if server is None else server.url
        runs = Runs(tmp_path / f"job-{jobs}", kind, url, leaves=leaves)
        jobs += 1
        ended = runs.killed_at(moments[-1], chance)
        while ended.code and moments:
            assert ended.code == -signal.SIGKILL, ended.err
            moments.pop()
            if server is not None and chance.random() < 0.5:
                server.kill()
                server.start()
            if moments:
                ended = runs.killed_at(moments[-1], chance)
        if ended.code:
            runs.to_the_end()
        else:  # it was done before the moment came: another one has to die for it
            runs.check(ended)
