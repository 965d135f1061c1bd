"""Seeded schedules: whatever drivers, tasks, hosts and clocks do, an epoch counts once.

They are the same each time.
"""

from pathlib import Path
from random import Random

import pytest

from tests.unit.simulation.elements import SECOND_US
from tests.unit.simulation.pipelines import pipeline
from tests.unit.simulation.shares import SCHEDULES, WITH_RECORDS_LEFT, timeout_s
from tests.unit.simulation.world import MAX_DRIVERS, MAX_PARTITIONS, World

pytestmark = pytest.mark.slow

PARTS = 7
DOINGS = {
    False: ("start", "job", "commit", "sweep"),
    True: ("start", "move", "job", "commit", "sweep"),
}
_MAX_DISTURBED = 2_000  # steps of one schedule

FOUND = {
    (0, 30): "a driver died before it had deleted, and the next ones committed few epochs each",
    (2, 30): "the last driver died before it had deleted, and the next one found nothing to do",
    (17, 30): "what a start took for the kept manifests, and where it went on, were of two moments",
    (65535, 10): "a pane was late downstream: its watermark was held at the window's last moment",
}
"""Seeds and lengths of pipelines by which errors were found, and which."""


def disturb(world: World, random: Random, *, migrates: bool) -> None:
    """Let one thing happen that must make no difference."""
    drivers = world.drivers
    match random.randrange(16 if migrates else 10):
        case 0 if drivers:
            world.kill(random.choice(drivers))
        case 1 if len(drivers) < MAX_DRIVERS:
            world.start()
        case 2 if drivers:
            random.choice(drivers).pauses_in = random.choice(DOINGS[migrates])
        case 3 if drivers:
            driver = random.choice(drivers)
            driver.is_paused = False
            for _ in range(random.randrange(1, 40)):
                if driver in world.drivers:
                    world.step_of(driver)
        case 4 if drivers:
            world.jump(random.choice(drivers), random.randrange(-50, 50) * SECOND_US)
        case 5:
            world.kill_attempt()
        case 6:
            world.restart_host(random.choice(("kept", "lost", "torn")))
        case 7 if drivers:
            random.choice(drivers).answers.loss = random.choice(("before", "after"))
        case 8:
            for _ in range(random.randrange(1, 4)):
                world.step_stray()
        case 9:
            world.deltas.fault = random.choice(("full", "hidden", "stored"))
        case 10 if len(drivers) < MAX_DRIVERS:
            world.start(random.randrange(1, MAX_PARTITIONS + 1))
        case 11:
            world.state_stores.fail_after(random.randrange(20))
        case 12:
            world.state_stores.lose_last(random)
        case 13:
            harm = random.choice(("flush", "structure"))
            if harm == "flush":
                world.state_stores.flush()
            else:
                world.state_stores.lose_a_structure(random)
        case 14 if len(drivers) < MAX_DRIVERS and random.random() < 0.3:
            world.start(changes_store=True)
        case 15 if drivers:
            random.choice(drivers).wants = random.randrange(1, MAX_PARTITIONS + 1)


def run(
    seed: int, folder: Path, length: int = 30, *, migrates: bool = True, looks_up: bool = False
) -> World:
    """Run a schedule over a pipeline of that length; return the world, which is closed.

    Args:
        seed: of both.
        folder: for files.
        length: of the pipeline.
        migrates: drivers may have different numbers of partitions.
        looks_up: the pipeline's declarative step has input, and may leave records.
    """
    random = Random(seed)
    world = World(pipeline(seed, length, looks_up=looks_up), seed, folder / str(seed))
    rate = random.choice((0.01, 0.03, 0.1))
    try:
        while not world.is_done and world.steps < _MAX_DISTURBED:
            if random.random() < rate:
                disturb(world, random, migrates=migrates)
            else:
                world.step()
        world.finish()
        return world
    finally:
        world.close()


@pytest.mark.timeout(timeout_s(SCHEDULES))
@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_happens_an_epoch_counts_once(part: int, tmp_path: Path) -> None:
    seed, steps = part * 1_000_000, 0
    while steps < SCHEDULES / PARTS:
        steps += run(seed, tmp_path).steps
        seed += 1


@pytest.mark.timeout(timeout_s(WITH_RECORDS_LEFT))
def test_whatever_happens_a_record_that_is_left_counts_once(tmp_path: Path) -> None:
    """Attempts at one task leave different records; those of the accepted one continue."""
    seed, steps, left = 1, 0, 0  # odd ones begin with a state store
    while steps < WITH_RECORDS_LEFT:
        world = run(seed, tmp_path, 20, looks_up=True)
        steps, left = steps + world.steps, left + world.left
        seed += 2
    assert left > steps // 100


@pytest.mark.parametrize(("seed", "length"), FOUND)
def test_what_was_wrong_once(seed: int, length: int, tmp_path: Path) -> None:
    run(seed, tmp_path, length, migrates=False)  # which there was not yet
