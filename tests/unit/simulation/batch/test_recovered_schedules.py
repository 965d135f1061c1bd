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
            world.sleep(random.choice((0, 30, 300)), before_commit=random.random() < 0.5)
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
    world = RecoveredWorld(drawn(random), seed, faults=random.choice((0.0, 0.05)))
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
            commits_ = (commit_in(name) for name in world.folders.root.content)
            newest = max(filter(None, commits_), default=0)
            if newest:
                name = commits().name_of(newest)
                running = commits().decode(world.folders.root.content[name], name).running
        world.has_lost_rows = True
        for rows in world.folders.rows.values():
            rows.is_lost = True
        world.finish()
    finally:
        world.close()
