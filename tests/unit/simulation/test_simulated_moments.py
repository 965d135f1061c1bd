"""Moments that have to be survived, each brought about on purpose."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.unit.simulation.driver import Driver
from tests.unit.simulation.pipelines import pipeline
from tests.unit.simulation.world import World

_LENGTH = 10
_MAX_STEPS = 5_000
SEEDS = range(6)


@pytest.fixture(params=SEEDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Pipelines with and without TestStreams, in turn."""
    made = World(pipeline(request.param, _LENGTH), request.param, tmp_path / "world", faults=0.0)
    yield made
    made.close()


def go_on(world: World, driver: Driver, until: Callable[[], bool]) -> None:
    """Let one driver go on until something has happened, which must be before its end."""
    for _ in range(_MAX_STEPS):
        if until():
            return
        assert driver in world.drivers, f"it has ended: {driver.end}"
        world.step_of(driver)
    raise AssertionError("it does not happen")


def test_a_task_is_lost_after_its_report(world: World) -> None:
    """Those downstream have read its rows, and it runs again: their outputs do not count."""
    driver = world.start()
    go_on(world, driver, lambda: len(world.chain) >= 2)
    epochs = len(world.chain)
    driver.faults = 1.0  # at each level, a task of the level before is lost
    for _ in range(_MAX_STEPS):
        if driver.end:
            break
        world.step_of(driver)
    assert driver.end == "gave up"
    assert len(world.chain) == epochs
    world.finish()


def test_of_two_drivers_one_goes_on(world: World) -> None:
    first = world.start()
    go_on(world, first, lambda: len(world.chain) >= 2)
    second = world.start()
    go_on(world, second, lambda: second.answers.fence > first.answers.fence)
    while first in world.drivers:
        world.step_of(first)
    assert first.end == "fenced"
    world.finish()


def test_a_report_comes_after_its_epoch(world: World) -> None:
    first = world.start()
    go_on(world, first, lambda: bool(first.running) and len(world.chain) >= 2)
    epochs = len(world.chain)
    world.kill(first)
    assert world.strays
    second = world.start()
    go_on(world, second, lambda: len(world.chain) > epochs)
    while world.strays:
        world.step_stray()  # they store their shards, and report to nobody
    world.finish()


def test_a_manifest_is_written_and_not_acknowledged(world: World) -> None:
    first = world.start()
    go_on(world, first, lambda: len(world.chain) >= 2)
    epochs = len(world.chain)
    go_on(world, first, lambda: first.ran > epochs and not first.running)
    first.answers.loss = "after"
    while first in world.drivers:
        world.step_of(first)
    assert first.end == "storage"
    assert len(world.chain) == epochs + 1
    world.finish()


def test_a_driver_dies_just_after_it_has_written_a_manifest(world: World) -> None:
    first = world.start()
    go_on(world, first, lambda: len(world.chain) >= 3)  # it pauses after each answer
    world.kill(first)
    world.finish()


def test_drivers_die_before_and_after_a_table_is_written(world: World) -> None:
    """Both times the epoch is committed, and nothing has noted that its rows are written."""
    first = world.start()
    go_on(world, first, lambda: len(world.chain) >= 2 and first.doing == "write")
    commits = len(world.table.commits)
    world.kill(first)
    second = world.start()
    go_on(world, second, lambda: len(world.table.commits) > commits)
    world.kill(second)
    world.finish()


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_start_with_other_partitions_in_the_middle(world: World, partitions: int) -> None:
    first = world.start()
    go_on(world, first, lambda: len(world.chain) >= 3)
    world.kill(first)
    second = world.start(partitions)
    go_on(world, second, lambda: world.chain[-1].partitions == partitions)
    world.finish()
    assert world.chain[-1].partitions == partitions


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_driver_changes_its_partitions_between_two_epochs(world: World, partitions: int) -> None:
    first = world.start()
    go_on(world, first, lambda: len(world.chain) >= 3)
    fence = world.chain[-1].fence
    first.wants = partitions
    go_on(world, first, lambda: world.chain[-1].partitions == partitions)
    assert world.chain[-1].fence == fence
    world.finish()
    assert world.chain[-1].partitions == partitions


def test_a_dead_driver_does_nothing_more(world: World) -> None:
    first = world.start()
    go_on(world, first, lambda: bool(first.running) and bool(world.chain))
    before = dict(world.files.content)
    world.kill(first)
    assert world.files.content == before


def test_an_error_hides_no_other_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes wrong in the background is not what users hear of, if an epoch has failed."""

    def fail() -> None:
        raise RuntimeError("the sweep has failed")

    driver = world.start()
    go_on(world, driver, lambda: len(world.chain) >= 2)  # it has not begun to sweep
    later = SimpleNamespace(submit=lambda work: SimpleNamespace(result=fail))
    monkeypatch.setattr(driver.background, "submit", later.submit)
    driver.faults = 1.0
    while not driver.end:
        world.step_of(driver)
    assert driver.end == "gave up"
    world.finish()


def test_an_earlier_start_commits_the_epoch_first(tmp_path: Path) -> None:
    """It has checked its fence before the later one claimed the next. Its epoch is the one."""
    overtaken = 0
    for seed in range(40):
        world = World(pipeline(seed, _LENGTH), seed, tmp_path / str(seed), faults=0.0)
        try:
            overtaken += is_overtaken(world)
            world.finish()
        finally:
            world.close()
    assert overtaken > 0


def is_overtaken(world: World) -> bool:
    """Whether a later start finds the epoch that it has run committed by an earlier one."""
    first = world.start()
    go_on(world, first, lambda: len(world.chain) >= 2 or bool(first.end))
    epochs, create, waiting = len(world.chain), first.answers.create, [False]

    def wait_first(name: str, data: bytes, after: Iterable[str] = ()) -> bool:
        waiting[0] = True
        first.pause()
        return create(name, data, after)

    first.answers.create = wait_first  # type: ignore[method-assign]
    go_on(world, first, lambda: waiting[0])
    second = world.start()
    go_on(world, second, lambda: second.ran == epochs + 1 or len(world.chain) > epochs)
    if len(world.chain) > epochs:  # it has superseded what the first one has stored
        return False
    go_on(world, first, lambda: len(world.chain) > epochs)
    go_on(world, second, lambda: len(world.chain) > epochs + 1 or world.is_done)
    return True
