"""How far what a task sends on has come, by what its stages have stored."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core.ids import DestinationId, PCollectionId, StageId
from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.engine.program import StageInEpochs, StageProgram
from beam_spark_runner.engine.task.epoch_watermarks import EpochWatermarks
from beam_spark_runner.harness.bundle import RecordLeft
from beam_spark_runner.harness.stored_in_flight import store_left, take_left
from beam_spark_runner.plan.model import Delivery, Stored
from beam_spark_runner.portable.stage_description import StageDescription
from beam_spark_runner.semantics.timers import Domain
from beam_spark_runner.state.backend import StoredTimer
from beam_spark_runner.state.store import StoredState
from tests.unit.engine.rows.written_rows import edge_of
from tests.unit.state.sorted_records import SortedRecords, count_values

STAGE, INPUT, OUTPUT = StageId(1), DestinationId(7), DestinationId(9)
PROGRAM = StageProgram(
    stage=STAGE,
    name="Group",
    description=cast(StageDescription, SimpleNamespace()),
    input=edge_of(Delivery.GROUP_BY_KEY),
    outputs={PCollectionId("groups"): (replace(edge_of(Delivery.POINTWISE), dest=OUTPUT),)},
    local={},
    collection="pairs",
    epoch=StageInEpochs(stores=frozenset({Stored.GROUPS})),
)


def output_us(*timers: StoredTimer, interrupted: bool, arriving_us: int = 90_000) -> int:
    store = StoredState(SortedRecords(), STAGE, count_values)
    store.set_timers("t", b"k", timers)
    watermarks = EpochWatermarks(reports_pb2.Epoch(), {int(INPUT): arriving_us})
    watermarks.advance(
        [PROGRAM],
        lambda program: store.least_hold(),
        lambda program: store.next_due(),
        {STAGE} if interrupted else (),
    )
    assert watermarks.inputs_us == {INPUT: arriving_us}
    return watermarks.outputs_us[OUTPUT]


def timer(fires_us: int, hold_us: int) -> StoredTimer:
    return StoredTimer("f", "", b"w", Domain.EVENT_TIME, fires_us, hold_us, b"")


@pytest.mark.parametrize("arriving_us", [90_000, MAX_US])
@pytest.mark.parametrize(
    ("hold_us", "expected_us"),
    [
        pytest.param(20_000, 20_000, id="it holds what its output may have"),
        pytest.param(MAX_US, 49_000, id="it has no output, but others may be due with it"),
    ],
)
def test_timers_that_are_due_and_have_not_fired_hold_what_comes_after_them(
    hold_us: int, expected_us: int, arriving_us: int
) -> None:
    due = timer(50_000, hold_us)
    assert output_us(due, interrupted=True, arriving_us=arriving_us) == expected_us


def test_timers_that_are_not_due_hold_what_they_say() -> None:
    later = timer(500_000, MAX_US)
    assert output_us(later, interrupted=False) == 90_000
    assert output_us(later, timer(300_000, 60_000), interrupted=False) == 60_000


def test_records_that_are_left_keep_the_side_inputs_that_they_may_look_up() -> None:
    view = edge_of(Delivery.GROUP_BY_KEY)
    declared = StageInEpochs(stores=frozenset({Stored.KEYS}), views={("step", "side"): view})
    program = replace(PROGRAM, epoch=declared)
    store = StoredState(SortedRecords(), STAGE, count_values)

    def looks_up_us() -> int:
        watermarks = EpochWatermarks(reports_pb2.Epoch(), {int(INPUT): MAX_US})
        watermarks.advance([program], lambda _: store.least_hold(), lambda _: (None, None), ())
        return watermarks.looks_up_us[int(view.dest)]

    store_left(store, [RecordLeft(b"k", hold_us, b"") for hold_us in (20_000, 10_000)])
    assert looks_up_us() == 10_000
    take_left(store)
    store_left(store, [RecordLeft(b"k", 20_000, b"")])
    assert looks_up_us() == 20_000
    take_left(store)
    assert looks_up_us() == MAX_US
