"""Which stages of a task have a partition, with elements or without."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from beam_spark_runner.core.ids import DestinationId, PCollectionId, StageId
from beam_spark_runner.engine.program import BatchPart, Edge, LevelProgram, StageProgram
from beam_spark_runner.engine.task.due_partitions import Partitions
from beam_spark_runner.plan.model import Delivery
from beam_spark_runner.portable.stage_description import StageDescription
from tests.unit.engine.worker.test_worker_runtime import program as level_named

HERE, NEXT, LATER = PCollectionId("here"), PCollectionId("next"), PCollectionId("later")


def edge(dest: int, delivery: Delivery, *, is_partition: bool = False) -> Edge:
    return Edge(
        dest=DestinationId(dest),
        code=dest,
        delivery=delivery,
        name="step",
        is_global=True,
        is_partition=is_partition,
    )


def stage(
    number: int,
    delivery: Delivery,
    *,
    local: Mapping[PCollectionId, tuple[StageId, ...]] | None = None,
    outputs: Mapping[PCollectionId, tuple[Edge, ...]] | None = None,
) -> StageProgram:
    description: Any = StageDescription.__new__(StageDescription)
    return StageProgram(
        stage=StageId(number),
        name=f"stage {number}",
        description=description,
        input=edge(number + 1, delivery, is_partition=delivery is Delivery.POINTWISE),
        outputs=outputs or {},
        local=local or {},
        collection="c",
    )


def level(*stages: StageProgram, is_round: bool = False) -> LevelProgram:
    passed_on = frozenset({7})
    return replace(
        level_named("job"), stages=stages, batch=BatchPart(is_round=is_round), passed_on=passed_on
    )


FIRST = stage(
    0,
    Delivery.REDISTRIBUTE,
    local={NEXT: (StageId(1),)},
    outputs={LATER: (edge(9, Delivery.POINTWISE, is_partition=True), edge(8, Delivery.POINTWISE))},
)
SECOND = stage(1, Delivery.POINTWISE)


@pytest.mark.parametrize(
    ("first", "is_round", "opened", "arrived", "found", "sent"),
    [
        pytest.param(FIRST, False, (), (), [True, True], {9}, id="after an exchange, all have"),
        pytest.param(FIRST, True, (), (), [False, False], set(), id="a round without rows"),
        pytest.param(FIRST, True, (0,), (), [True, True], {9}, id="a round with rows"),
        pytest.param(FIRST, True, (1,), (), [False, True], set(), id="what got elements has"),
        pytest.param(
            replace(FIRST, input=edge(1, Delivery.POINTWISE)),
            *(False, (), (), [False, False], set()),
            id="before the first exchange, a task of another source",
        ),
        pytest.param(
            replace(FIRST, input=edge(1, Delivery.POINTWISE)),
            *(False, (), (1,), [True, True], {9}),
            id="an empty partition that was stored",
        ),
        pytest.param(FIRST, True, (), (2, 7), [False, True], {7}, id="what is for others goes on"),
        pytest.param(
            FIRST,
            *(True, (), (2, 6), [False, True], set()),
            id="what another Spark job reads does not",
        ),
    ],
)
def test_stages_have_a_partition_if_they_or_their_feeders_got_one(
    first: StageProgram,
    is_round: bool,
    opened: tuple[int, ...],
    arrived: tuple[int, ...],
    found: list[bool],
    sent: set[int],
) -> None:
    partitions = Partitions(level(first, SECOND, is_round=is_round))
    partitions.arrived = frozenset(arrived)
    stages = frozenset(map(StageId, opened))
    assert [partitions.has_one_for(each, stages) for each in (first, SECOND)] == found
    assert partitions.sent == sent


def test_what_a_task_passes_on_unprocessed_stays_a_partition() -> None:
    partitions = Partitions(level(FIRST, SECOND))
    partitions.arrived = frozenset({2, 7})
    assert partitions.sent == {7}
