"""Chooses the class of a stage in a task of an epoch."""

from beam_spark_runner.engine.program import StageProgram
from beam_spark_runner.engine.task.epoch_stage import EpochStage
from beam_spark_runner.engine.task.postponing_stage import PostponingKeyedStage, StableStage
from beam_spark_runner.engine.task.splittable_in_epochs import SplittableInEpochs
from beam_spark_runner.engine.task.storing_stage import StoringStage
from beam_spark_runner.engine.task.view_stage import ViewStage
from beam_spark_runner.engine.task.waiting_stage import WaitingStage
from beam_spark_runner.plan.model import Stored


def kind_of(program: StageProgram) -> type[EpochStage]:
    """Return the class of a stage that stores data in the shard."""
    stores = program.in_epochs.stores
    if Stored.RESTRICTIONS in stores:
        return SplittableInEpochs
    if Stored.VIEW in stores:
        return ViewStage
    if stores & {Stored.UNCOMMITTED, Stored.UNSORTED}:
        return PostponingKeyedStage if Stored.KEYS in stores else StableStage
    return StoringStage if stores & {Stored.KEYS, Stored.GROUPS} else WaitingStage
