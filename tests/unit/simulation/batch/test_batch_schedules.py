"""Bounded pipelines: whatever a cluster does, each element counts once, or the pipeline fails."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_spark_runner.graph.model import Graph
from tests.golden.random_graphs import graphs
from tests.unit.simulation.batch.pipelines import BoundedPipeline, drawn, planned
from tests.unit.simulation.batch.world import BatchWorld
from tests.unit.simulation.shares import BATCH_DRAWN, BATCH_SCHEDULES, timeout_s

pytestmark = pytest.mark.slow

PARTS = 2
_MAX_DISTURBED = 400  # steps of one schedule
_STEPS_OF_AN_EXAMPLE = 40  # about


def disturb(world: BatchWorld, random: Random) -> None:
    """Let one thing happen that must make no difference, or of which the pipeline fails."""
    match random.randrange(20):
        case 0 | 1 | 2 | 3:
            world.lose_host()
        case 4 | 5 | 6 | 7:
            world.lose_rows()
        case 8 | 9 | 10 | 11:
            world.repeat_stage(random.randrange(10))
        case 12 | 13:
            world.crash()
        case 14:
            world.give_up()
        case 15:
            world.cancel()
        case _:
            world.holds_back = random.choice(("driver", "beside", ""))


def run(pipeline: BoundedPipeline, seed: int) -> int:
    """Run a pipeline to its end; return how many steps it took."""
    random = Random(seed)
    world = BatchWorld(pipeline, seed, faults=random.choice((0.0, 0.05, 0.2)))
    world.keeps_twice = random.choice((0.0, 0.1, 0.4))
    rate = random.choice((0.0, 0.05, 0.1))
    try:
        while not world.end and world.steps < _MAX_DISTURBED:
            if random.random() < rate:
                disturb(world, random)
            world.step()
        world.finish()
        return world.steps
    finally:
        world.close()


@pytest.mark.timeout(timeout_s(BATCH_SCHEDULES))
@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_happens_an_element_counts_once(part: int) -> None:
    seed, steps = part * 1_000_000, 0
    while steps < BATCH_SCHEDULES / PARTS:
        steps += run(drawn(seed), seed)
        seed += 1


@pytest.mark.timeout(timeout_s(BATCH_DRAWN))
@settings(max_examples=BATCH_DRAWN // _STEPS_OF_AN_EXAMPLE, derandomize=True, database=None)
@given(graph=graphs(), seed=st.integers(0, 1 << 32), most=st.integers(1, 3))
def test_whatever_the_pipeline_is(graph: Graph, seed: int, most: int) -> None:
    run(drawn(seed, planned(graph, most)), seed)
