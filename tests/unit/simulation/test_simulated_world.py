"""Schedules that Hypothesis draws, and makes as short as they can be where something is wrong."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.unit.simulation.driver import Driver
from tests.unit.simulation.elements import SECOND_US
from tests.unit.simulation.pipelines import pipeline
from tests.unit.simulation.shares import DRAWN, timeout_s
from tests.unit.simulation.world import MAX_DRIVERS, MAX_PARTITIONS, World

pytestmark = pytest.mark.slow

DOINGS = ["start", "move", "job", "commit", "sweep"]
_LENGTH = 10  # of a pipeline: about how many epochs it takes
_STEPS_OF_AN_EXAMPLE = 400  # they are somewhat more


class Worlds(RuleBasedStateMachine):
    """See ``World``."""

    steps = 0  # of all

    @initialize(seed=st.integers(0, 1 << 16))
    def begin(self, seed: int) -> None:
        folder = tempfile.mkdtemp(prefix="simulation-")
        self.world = World(pipeline(seed, _LENGTH), seed, Path(folder))

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            self.world.finish()
        finally:
            Worlds.steps += self.world.steps
            self.world.close()

    def some(self, which: int) -> Driver:
        """Return one of the drivers; a new one if there is none."""
        drivers = self.world.drivers
        return drivers[which % len(drivers)] if drivers else self.world.start()

    @rule(steps=st.integers(1, 60))
    def all_go_on(self, steps: int) -> None:
        for _ in range(steps):
            if not self.world.is_done:
                self.world.step()

    @rule(which=st.integers(0, 2), steps=st.integers(1, 60))
    def one_goes_on(self, which: int, steps: int) -> None:
        driver = self.some(which)
        driver.is_paused = False
        for _ in range(steps):
            if driver in self.world.drivers:
                self.world.step_of(driver)

    @rule(which=st.integers(0, 2))
    def a_driver_dies(self, which: int) -> None:
        self.world.kill(self.some(which))

    @precondition(lambda self: len(self.world.drivers) < MAX_DRIVERS)
    @rule()
    def another_driver_starts(self) -> None:
        self.world.start()

    @precondition(lambda self: len(self.world.drivers) < MAX_DRIVERS)
    @rule(partitions=st.integers(1, MAX_PARTITIONS))
    def a_driver_starts_with_other_partitions(self, partitions: int) -> None:
        self.world.start(partitions)

    @rule(which=st.integers(0, 2), partitions=st.integers(1, MAX_PARTITIONS))
    def a_running_driver_changes_its_partitions(self, which: int, partitions: int) -> None:
        self.some(which).wants = partitions

    @rule(which=st.integers(0, 2), doing=st.sampled_from(DOINGS))
    def a_driver_pauses(self, which: int, doing: str) -> None:
        self.some(which).pauses_in = doing

    @rule(which=st.integers(0, 2), seconds=st.integers(-100, 100))
    def a_clock_jumps(self, which: int, seconds: int) -> None:
        self.world.jump(self.some(which), seconds * SECOND_US)

    @rule(which=st.integers(0, 2), loss=st.sampled_from(["before", "after"]))
    def the_storage_fails(self, which: int, loss: str) -> None:
        self.some(which).answers.loss = loss

    @rule(fault=st.sampled_from(["full", "hidden", "stored"]))
    def a_delta_is_not_stored(self, fault: str) -> None:
        self.world.deltas.fault = fault

    @rule()
    def a_task_dies(self) -> None:
        self.world.kill_attempt()

    @rule(disk=st.sampled_from(["kept", "lost", "torn"]))
    def a_host_is_started_anew(self, disk: str) -> None:
        self.world.restart_host(disk)

    @rule(steps=st.integers(1, 6))
    def forgotten_tasks_go_on(self, steps: int) -> None:
        for _ in range(steps):
            self.world.step_stray()


@pytest.mark.timeout(timeout_s(DRAWN))
def test_whatever_is_drawn_an_epoch_counts_once(pytestconfig: pytest.Config) -> None:
    """It is the same each time, unless ``--hypothesis-seed`` is given."""
    is_free = pytestconfig.getoption("--hypothesis-seed") is not None
    run_state_machine_as_test(
        Worlds,
        settings=settings(
            max_examples=DRAWN // _STEPS_OF_AN_EXAMPLE,
            stateful_step_count=25,
            derandomize=not is_free,
            database=None,
            deadline=None,
        ),
    )
    assert Worlds.steps >= DRAWN
