"""Chooses the class of a stage in a task of an epoch."""

from beam_spark_runner.engine.program import StageProgram
from beam_spark_runner.engine.task.epoch_stage import EpochStage
from beam_spark_runner.engine.task.postponing_stage import PostponingKeyedStage, StableStage
from beam_spark_runner.engine.task.splittable_in_epochs import SplittableInEpochs
from beam_spark_runner.engine.task.storing_stage import StoringStage
from beam_spark_runner.engine.task.view_stage import ViewStage
from beam_spark_runner.engine.task.waiting_stage import WaitingStage
from beam_spark_runner.plan.model import Delivery


def stores_keys(program: StageProgram) -> bool:
    """Whether a stage has state, timers, or windows that wait for their trigger."""
    return program.input.is_keyed or program.input.delivery is Delivery.GROUP_BY_KEY


def uses_shard(program: StageProgram) -> bool:
    """Whether a stage of a streaming pipeline stores data in the shard."""
    return (
        stores_keys(program)
        or program.description.is_splittable
        or program.input.delivery is Delivery.SIDE_INPUT
        or bool(program.views)
        or program.is_stable
    )


def postpones(program: StageProgram) -> bool:
    """Whether a stage stores its input, to process it later."""
    return program.is_stable or program.input.is_time_sorted


def kind_of(program: StageProgram) -> type[EpochStage]:
    """Return the class of a stage that stores data in the shard."""
    if program.description.is_splittable:
        return SplittableInEpochs
    if program.input.delivery is Delivery.SIDE_INPUT:
        return ViewStage
    if postpones(program):
        return PostponingKeyedStage if program.input.is_keyed else StableStage
    return StoringStage if stores_keys(program) else WaitingStage
