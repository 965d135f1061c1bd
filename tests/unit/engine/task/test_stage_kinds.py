"""Which class a stage has, by what it stores."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from beam_spark_runner.core.ids import StageId
from beam_spark_runner.engine.program import StageInEpochs, StageProgram
from beam_spark_runner.engine.task.epoch_stage import EpochStage
from beam_spark_runner.engine.task.postponing_stage import PostponingKeyedStage, StableStage
from beam_spark_runner.engine.task.splittable_in_epochs import SplittableInEpochs
from beam_spark_runner.engine.task.stage_kinds import kind_of
from beam_spark_runner.engine.task.storing_stage import StoringStage
from beam_spark_runner.engine.task.view_stage import ViewStage
from beam_spark_runner.engine.task.waiting_stage import WaitingStage
from beam_spark_runner.plan.model import Delivery, Stored
from beam_spark_runner.portable.stage_description import StageDescription
from tests.unit.engine.rows.written_rows import edge_of

PROGRAM = StageProgram(
    stage=StageId(1),
    name="Use",
    description=cast(StageDescription, SimpleNamespace()),
    input=edge_of(Delivery.POINTWISE),
    outputs={},
    local={},
    collection="pairs",
)


@pytest.mark.parametrize(
    ("stores", "kind"),
    [
        ({Stored.KEYS}, StoringStage),
        ({Stored.GROUPS}, StoringStage),
        ({Stored.GROUPS, Stored.KEYS}, StoringStage),
        ({Stored.GROUPS, Stored.UNREADY}, StoringStage),
        ({Stored.UNREADY}, WaitingStage),
        ({Stored.UNCOMMITTED}, StableStage),
        ({Stored.KEYS, Stored.UNCOMMITTED}, PostponingKeyedStage),
        ({Stored.KEYS, Stored.UNSORTED}, PostponingKeyedStage),
        ({Stored.VIEW}, ViewStage),
        ({Stored.RESTRICTIONS}, SplittableInEpochs),
        ({Stored.RESTRICTIONS, Stored.UNCOMMITTED}, SplittableInEpochs),
    ],
)
def test_the_class_of_a_stage(stores: set[Stored], kind: type[EpochStage]) -> None:
    program = replace(PROGRAM, epoch=StageInEpochs(stores=frozenset(stores)))
    assert kind_of(program) is kind
