"""Bounded pipelines whose drivers die, sleep, and lose answers: each element counts once."""

from dataclasses import replace
from random import Random

import pytest

from beam_spark_runner.recovery.batch_manifest import commit_in, commits
from beam_spark_runner.recovery.finishes import finish_in
from tests.golden.notation import parse
from tests.unit.simulation.batch.pipelines import SHAPES, BoundedPipeline, planned_in_levels
from tests.unit.simulation.batch.recovered_world import RecoveredWorld
from tests.unit.simulation.shares import BATCH_RECOVERED, timeout_s

pytestmark = pytest.mark.slow

_MAX_DISTURBED = 1_500  # steps of one schedule


def drawn(random: Random) -> BoundedPipeline:
    shape = random.choice(list(SHAPES))
    return BoundedPipeline(
        plan=planned_in_levels(parse(SHAPES[shape])),
        partitions=random.choice((1, 2, 3)),
        counts_bytes=random.random() < 0.5,
        has_rounds=random.random() < 0.8,
        shares_storage=True,
    )


def disturb(world: RecoveredWorld, random: Random) -> None:
    """Let one thing happen that must make no difference."""
    match random.randrange(9):
        case 0 | 1:
            world.kill()
        case 2 | 3 | 4:
            world.sleep(random.choice((0, 30, 300, 1_000)), before_commit=random.random() < 0.5)
        case 5:
            world.lose_answer()
        case 6:
            # Another cluster, or other options.
            world.pipeline = replace(
                world.pipeline,
                partitions=random.choice((1, 2, 3)),
                has_rounds=random.random() < 0.5,
            )
        case 7:
            world.lose_host()
        case 8:
            world.lose_file()


def run(seed: int) -> tuple[int, int]:
    """Run a pipeline to its end; return how many steps and how many starts it took."""
    random = Random(seed)
    faults, jobs = random.choice((0.0, 0.05)), random.choice((1, 2, 3))
    world = RecoveredWorld(drawn(random), seed, faults, jobs=jobs)
    rate = random.choice((0.0, 0.01, 0.03))
    try:
        while not world.end and world.steps < _MAX_DISTURBED:
            if random.random() < rate:
                disturb(world, random)
            else:
                world.step()
        world.finish()
        return world.steps, world.count
    finally:
        world.close()


@pytest.mark.timeout(timeout_s(BATCH_RECOVERED))
def test_whatever_happens_to_drivers_an_element_counts_once() -> None:
    seed = steps = starts = 0
    while steps < BATCH_RECOVERED:
        took, count = run(seed)
        steps, starts, seed = steps + took, starts + count, seed + 1
    assert starts > 2 * seed


def wakes_up_in_the_next_job(seed: int, *, has_subfolders: bool = True) -> str:
    """A driver sleeps while others end its job, and wakes up while the next job runs.

    Returns:
        How the last job has ended.
    """
    random = Random(seed)
    plan = planned_in_levels(parse(SHAPES["chain"]))
    pipeline = BoundedPipeline(plan=plan, partitions=2, shares_storage=True)
    world = RecoveredWorld(pipeline, seed, 0.0, jobs=2, has_subfolders=has_subfolders)
    try:
        falls_asleep, wakes_up = random.randrange(150), random.randrange(150)
        while world.steps < falls_asleep:
            world.step()
        sleeper = world.starts[0]
        world.sleep(_MAX_DISTURBED, before_commit=random.random() < 0.3)
        while world.begun < 2 and not world.end:
            world.step()
        since = world.steps
        while world.steps < since + wakes_up and not world.end:
            world.step()
        sleeper.wakes_at = 0
        if random.random() < 0.5 and not world.end:
            world.step()
            world.kill()
        world.finish()
        return world.end
    finally:
        world.close()


def test_a_driver_that_wakes_up_in_the_next_job_changes_nothing_of_it() -> None:
    assert {wakes_up_in_the_next_job(seed) for seed in range(60)} == {"done"}


def test_a_job_without_a_subfolder_would_be_changed() -> None:
    """Otherwise, the previous test would not find it."""

    def is_changed(seed: int) -> bool:
        try:
            wakes_up_in_the_next_job(seed, has_subfolders=False)
        except AssertionError:
            return True
        return False

    assert any(map(is_changed, range(60)))


def test_a_finished_partition_is_not_run_again() -> None:
    plan = planned_in_levels(parse(SHAPES["chain"]))
    world = RecoveredWorld(BoundedPipeline(plan=plan, partitions=3, shares_storage=True), 0, 0.0)
    try:
        finished: list[int] = []  # partitions of the last level that has begun
        while len(finished) != 2:
            world.step()
            finished = [
                finish.partition
                for files in world.folders.work.values()
                for finish in filter(None, map(finish_in, files.content))
                if finish.partitions == 3
            ]
        level = max(level for level, _ in world.tasks)
        world.kill()
        world.finish()
        assert [world.tasks[level, each] for each in finished] == [1, 1]
    finally:
        world.close()


@pytest.mark.parametrize("shape", ["rounds", "rounds after rounds"])
def test_what_tasks_have_left_is_processed_by_a_start_without_rounds(shape: str) -> None:
    """Whenever the driver dies that has rounds."""
    plan, at = planned_in_levels(parse(SHAPES[shape])), 0
    while True:
        pipeline = BoundedPipeline(plan=plan, partitions=2, shares_storage=True)
        world = RecoveredWorld(pipeline, at, 0.0)
        try:
            while world.steps < at and not world.end:
                world.step()
            if world.end:
                return
            world.pipeline = replace(pipeline, has_rounds=False)
            world.kill()
            world.finish()
        finally:
            world.close()
        at += 5


def test_rows_between_two_rounds_are_made_again() -> None:
    plan = planned_in_levels(parse(SHAPES["rounds"]))
    world = RecoveredWorld(BoundedPipeline(plan=plan, partitions=2, shares_storage=True), 0, 0.0)
    try:
        running = None
        while running is None:
            world.step()
            stored = world.folders.root.content
            by_commit = {commit_in(name.rpartition("/")[2]): name for name in stored}
            newest = max(filter(None, by_commit), default=0)
            if newest:
                name = by_commit[newest]
                running = commits().decode(stored[name], name).running
        world.has_lost_rows = True
        for rows in world.folders.rows.values():
            rows.is_lost = True
        world.finish()
    finally:
        world.close()
