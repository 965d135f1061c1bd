"""Moments of bounded pipelines that have to be survived, each brought about on purpose."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from beam_spark_runner.scheduling.segments import MAX_CRASHES, MAX_RUNS
from tests.unit.simulation.batch.pipelines import SHAPES, BoundedPipeline, plan_of
from tests.unit.simulation.batch.world import BatchWorld

_MAX_STEPS = 2_000
_MAX_SEEDS = 60


@contextmanager
def world_of(
    shape: str, seed: int = 0, max_exchanges: int = 12, **how: Any
) -> Iterator[BatchWorld]:
    """Return a world in which nothing happens unless it is made to."""
    pipeline = BoundedPipeline(plan=plan_of(shape, max_exchanges), **how)
    world = BatchWorld(pipeline, seed, faults=0.0)
    try:
        yield world
    finally:
        world.close()


def go_on(world: BatchWorld, until: Callable[[], bool]) -> None:
    """Let the world continue until something has happened, which must be before its end."""
    for _ in range(_MAX_STEPS):
        if until():
            return
        assert not world.end, f"it has ended: {world.end}"
        world.step()
    raise AssertionError("it does not happen")


def most_runs(world: BatchWorld) -> int:
    return max(world.runs.values(), default=0)


@pytest.mark.parametrize("has_first_tasks", [False, True])
@pytest.mark.parametrize("has_rounds", [False, True])
@pytest.mark.parametrize("max_exchanges", [1, 12])
@pytest.mark.parametrize("shape", SHAPES)
def test_where_nothing_happens_each_segment_runs_once(
    shape: str, max_exchanges: int, has_rounds: bool, has_first_tasks: bool
) -> None:
    how = {"has_first_tasks": has_first_tasks, "has_rounds": has_rounds}
    with world_of(shape, max_exchanges=max_exchanges, **how) as world:
        world.finish()
        assert (world.end, most_runs(world)) == ("done", 1)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_task_is_lost_after_its_report(shape: str) -> None:
    """One task downstream has read its rows, and others read those of another attempt."""
    with world_of(shape, max_exchanges=2) as world:
        go_on(world, lambda: any(job.are_some_read for job in world.cluster.running))
        world.repeat_stage(-2)
        world.finish()
        assert (world.end, most_runs(world)) == ("done", 2)


@pytest.mark.parametrize("shares_storage", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_of_two_attempts_are_kept(shape: str, shares_storage: bool) -> None:
    runs = 0
    for seed in range(5):
        with world_of(shape, seed, 1, shares_storage=shares_storage) as world:
            while not world.end:
                world.keeps_twice = float(most_runs(world) < 2)
                world.step()
            assert world.end == "done"
            runs = max(runs, most_runs(world))
    assert runs > 1


def test_a_stage_runs_again_while_rows_are_read() -> None:
    """They are the same rows, and so there is nothing to be done."""
    with world_of("chain", max_exchanges=1) as world:
        go_on(
            world,
            lambda: world.runs.total() == 2 and any(j.are_some_read for j in world.cluster.running),
        )
        world.repeat_stage(0)
        world.finish()
        assert (world.end, most_runs(world)) == ("done", 1)


def test_rows_that_are_lost_are_made_again() -> None:
    with world_of("side inputs") as world:
        go_on(world, lambda: len(world.runs) == 2)
        first, second = world.runs
        world.lose_all_hosts()
        world.finish()
        assert world.end == "done"
        assert (world.runs[first], world.runs[second]) == (2, 2)


def test_all_readers_of_lost_rows_run_again() -> None:
    """One reader has ended: it has seen other rows than a later one would see now."""
    with world_of("side inputs") as world:
        go_on(world, lambda: len(world.runs) == 3)
        world.lose_all_hosts()
        world.finish()
        assert world.end == "done"
        assert [*world.runs.values()] == [2, 2, 2]


@pytest.mark.parametrize("held_back", ["beside", "driver", ""])
def test_another_job_helps_the_first_task(held_back: str) -> None:
    """It ends after the first task, before it, or as it happens."""
    helped = 0
    for seed in range(_MAX_SEEDS):
        with world_of("chain", seed, has_first_tasks=True) as world:
            while not world.end:
                is_helped = len(world.cluster.running) > 1
                world.holds_back = held_back if is_helped else ""
                world.step()
            assert (world.end, most_runs(world)) == ("done", 1)
            helped += bool(world.beside & {made.run for made in world.results})
    assert helped


def test_help_for_an_attempt_that_is_lost_does_not_count() -> None:
    lost = 0
    for seed in range(_MAX_SEEDS):
        with world_of("chain", seed, has_first_tasks=True) as world:
            while not (world.end or world.beside):
                world.step()
            world.lose_all_hosts()
            world.finish()
            assert (world.end, most_runs(world)) == ("done", 1)
            is_helped = bool(world.beside & {made.run for made in world.results})
            lost += bool(world.beside) and not is_helped
    assert lost


def test_user_code_that_fails_next_to_the_first_task_ends_the_pipeline() -> None:
    failed = 0
    for seed in range(_MAX_SEEDS):
        with world_of("chain", seed, has_first_tasks=True, is_poisoned=True) as world:
            world.finish()
            assert world.end == "failed"
            failed += bool(world.beside)
    assert failed


def test_too_many_attempts() -> None:
    with world_of("chain", shares_storage=True, max_exchanges=1) as world:
        world.keeps_twice = 1.0
        go_on(world, lambda: bool(world.end))
        assert world.end == "gave up"
        assert world.error is not None
        assert world.error.reason.endswith(f"({MAX_RUNS} times)")


def test_too_many_crashes() -> None:
    with world_of("chain") as world:
        while not world.end:
            world.crash()
            world.step()
        assert world.error is not None
        assert world.error.reason == f"executor lost ({MAX_CRASHES} times)"


@pytest.mark.parametrize("has_first_tasks", [False, True])
def test_the_level_that_failed_is_named(has_first_tasks: bool) -> None:
    """The world checks the name."""
    with world_of("chain", has_first_tasks=has_first_tasks) as world:
        go_on(world, lambda: any(job.level == 1 for job in world.cluster.running))
        world.give_up()
        world.finish()
        assert world.error is not None


def test_a_pipeline_is_cancelled() -> None:
    with world_of("rounds") as world:
        go_on(world, lambda: bool(world.cluster.running))
        world.cancel()
        world.finish()
        assert world.end == "cancelled"
