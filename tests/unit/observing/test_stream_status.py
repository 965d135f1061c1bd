"""The status of a pipeline's steps, from what the tasks of an epoch report."""

import dataclasses
from collections.abc import Mapping
from functools import cache

from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.graph.passes import STREAMING, run_passes
from beam_spark_runner.observing.epoch_status import (
    Blocked,
    EpochPart,
    EpochStatus,
    EpochTimes,
    Hold,
    HoldReason,
    LevelState,
)
from beam_spark_runner.observing.stream_status import StreamStatus
from beam_spark_runner.plan.build import build
from beam_spark_runner.plan.feeding import inputs
from beam_spark_runner.plan.model import Delivery, Plan
from beam_spark_runner.scheduling.attempts import (
    Report,
    Residuals,
    ShardReport,
    StageReport,
    Waiting,
)
from beam_spark_runner.scheduling.finish import Finished
from tests.golden.notation import parse

GIVEN = """Seed: impulse() -> seed
Read: pardo(seed) -> events @py restriction=r
Pair: pardo(events) -> pairs @py
Group: group_by_key(pairs) -> groups
Show: pardo(groups) -> shown @py
Count: pardo(pairs, rates as iterable) -> counted @py state=count timers=due
Rates: impulse() -> start
Make: pardo(start) -> rates @py
seed :: bytes
events :: bytes
pairs :: kv<bytes,bytes>
groups :: kv<bytes,iterable<bytes>>
counted :: kv<bytes,bytes>
"""
TOOK = EpochTimes(total_us=1_000, planning_us=100, jobs_us=700, budget_us=500)


@cache
def plan() -> Plan:
    return build(run_passes(parse(GIVEN), STREAMING), max_exchanges=12, is_streaming=True)


def dest(step: str) -> int:
    """Return the destination in front of a step."""
    for stage, id_ in inputs(plan()).items():
        names = [plan().graph.transforms[each].name for each in plan().stages[stage].transforms]
        destination = plan().destinations[id_]
        if destination.delivery is not Delivery.SIDE_INPUT and step in [*names, destination.name]:
            return int(id_)
    raise AssertionError(step)


def report(
    partition: int,
    stages: Mapping[str, StageReport],
    *,
    level: int = 0,
    spent_us: int = 0,
    stored_bytes: int | None = None,
    group_bytes: int = 0,
    stored_records: int = 0,
    next_event_us: int | None = None,
    deferred: Mapping[str, Residuals] | None = None,
) -> Report:
    shard = None
    if stored_bytes is not None:
        shard = ShardReport(
            epoch=1,
            attempt=1,
            next_event_us=next_event_us,
            next_clock_us=None,
            stored_bytes=stored_bytes,
            group_bytes=group_bytes,
            stored_records=stored_records,
        )
    return Report(
        level=level,
        partition=partition,
        attempt=partition,
        stages={dest(step): each for step, each in stages.items()},
        spent_us=spent_us,
        shard=shard,
        deferred=deferred or {},
    )


def after(
    *reports: Report,
    watermarks_us: Mapping[str, int] | None = None,
    finished: Finished | None = None,
    given: Plan | None = None,
) -> EpochStatus:
    return StreamStatus(given or plan()).status_after(
        7,
        reports,
        clock_us=9,
        watermarks_us={dest(step): time_us for step, time_us in (watermarks_us or {}).items()},
        finished=finished or {},
        took=TOOK,
    )


def test_steps_of_a_stage_share_its_output_and_the_first_one_holds_it() -> None:
    status = after(
        report(0, {"Group": StageReport(4_000, 4_000)}),
        report(1, {"Group": StageReport(5_000, None)}),
        watermarks_us={"Group": 8_000},
    )
    group, show = status.steps["Group"], status.steps["Show"]
    assert (group.input_us, group.output_us) == (8_000, 4_000)
    assert group.hold == Hold(HoldReason.WINDOW, 4_000)
    assert (show.input_us, show.output_us, show.hold) == (4_000, 4_000, None)


def test_nothing_holds_what_is_as_far_as_its_input() -> None:
    status = after(
        report(0, {"Group": StageReport(8_000, 9_000)}), watermarks_us={"Group": 8_999}
    )  # in whole milliseconds
    assert status.steps["Group"].hold is None


def test_timers_that_an_epoch_has_left() -> None:
    status = after(report(0, {"Count": StageReport(3_000, 7_000)}), watermarks_us={"Count": 8_000})
    hold = status.steps["Count"].hold
    assert hold is not None
    assert hold.holder is HoldReason.DUE_TIMER


def test_a_timer_of_user_code() -> None:
    status = after(report(0, {"Count": StageReport(7_000, 7_000)}), watermarks_us={"Count": 8_000})
    assert status.steps["Count"].hold == Hold(HoldReason.TIMER, 7_000)


def test_elements_that_wait_are_those_of_the_step_that_looks_up() -> None:
    """They wait in a step of the runner's own, in front of the one with state."""
    view = next(
        int(id_)
        for id_, each in plan().destinations.items()
        if each.delivery is Delivery.SIDE_INPUT
    )
    waiting = StageReport(2_000, 2_000, Waiting(2_000, b"w", (view,)))
    status = after(
        report(0, {"Count/Wait": waiting, "Count": StageReport(2_000)}),
        report(1, {"Count/Wait": StageReport(8_000, None)}),
        watermarks_us={"Count/Wait": 8_000, "Count": 2_000},
    )
    count = status.steps["Count"]
    assert (count.input_us, count.output_us) == (2_000, 2_000)
    assert count.hold == Hold(HoldReason.SIDE_INPUT, 2_000)
    assert count.blocked == Blocked(2_000, b"w", ("Make",))
    assert not [name for name in status.steps if name.endswith("/Wait")]


def test_records_that_are_left_for_the_next_epoch() -> None:
    given = plan()
    (step,) = (id_ for id_, each in given.graph.transforms.items() if each.name == "Count")
    declared = dataclasses.replace(given.graph.transforms[step], declared=("a",))
    transforms = {**given.graph.transforms, step: declared}
    declarative = dataclasses.replace(
        given, graph=dataclasses.replace(given.graph, transforms=transforms)
    )
    status = after(
        report(0, {"Count": StageReport(2_000, 2_000, None, Residuals(3, 2_000))}),
        report(1, {"Count": StageReport(3_000, 3_000, None, Residuals(4, 3_000))}),
        report(2, {"Count": StageReport(8_000)}),
        watermarks_us={"Count": 8_000},
        given=declarative,
    )
    assert status.steps["Count"].left == 7
    assert status.steps["Count"].hold == Hold(HoldReason.READ, 2_000)
    assert status.steps["Show"].left is None
    assert after(given=declarative).steps["Count"].left == 0
    held_by_timer = StageReport(1_000, 1_000, None, Residuals(3, 2_000))
    status = after(report(0, {"Count": held_by_timer}), watermarks_us={"Count": 8_000})
    assert status.steps["Count"].hold == Hold(HoldReason.TIMER, 1_000)


def test_restrictions_and_their_backlog() -> None:
    step = next(id_ for id_, each in plan().graph.transforms.items() if each.name == "Read/Process")
    stages = {"Read/Process": StageReport(1_000, 1_000)}
    first = report(0, stages, deferred={str(step): Residuals(2, 1_000, 40.0)})
    second = report(1, stages, deferred={str(step): Residuals(1, 5_000, 2.5)})
    unknown = report(1, stages, deferred={str(step): Residuals(101, 5_000)})
    read = after(first, second, watermarks_us={"Read/Process": MAX_US}).steps["Read/Process"]
    assert (read.restrictions, read.backlog) == (3, 42.5)
    assert read.hold == Hold(HoldReason.RESTRICTION, 1_000)
    read = after(first, unknown).steps["Read/Process"]
    assert (read.restrictions, read.backlog) == (103, None)
    read = after(report(0, stages)).steps["Read/Process"]
    assert (read.restrictions, read.backlog) == (0, 0.0)
    assert after().steps["Pair"].restrictions is None


def test_what_has_finished_is_at_the_end_of_time_and_what_has_not_begun_at_the_beginning() -> None:
    status = after(finished={dest("Make"): frozenset({0})}, watermarks_us={"Make": MAX_US})
    assert (status.steps["Make"].input_us, status.steps["Make"].output_us) == (MAX_US, MAX_US)
    assert status.steps["Group"].output_us == MIN_US


def test_of_equal_watermarks_the_last_step_is_one_with_a_hold() -> None:
    held = after(
        report(
            0,
            {
                "Group": StageReport(4_000, 4_000),
                "Count/Wait": StageReport(4_000),
                "Count": StageReport(4_000),
            },
        ),
        watermarks_us={"Group": 8_000, "Count/Wait": 4_000, "Count": 4_000},
    )
    steps = {name: held.steps[name] for name in ("Show", "Group", "Count")}
    assert EpochStatus(epoch=1, steps=steps).last_step() == "Group"
    done = after(finished={dest("Make"): frozenset({0})}).steps["Make"]
    assert EpochStatus(epoch=1, steps={"Make": done}).last_step() is None


def test_the_time_of_an_epoch_is_divided_into_its_parts() -> None:
    status = after(
        report(0, {}, spent_us=50),
        report(1, {}, spent_us=200),
        report(0, {}, level=1, spent_us=300),
        report(1, {}, level=1, spent_us=10),
    )
    assert status.parts_us == {
        EpochPart.PLANNING: 100,
        EpochPart.TASKS: 500,
        EpochPart.SPARK: 200,
        EpochPart.COMMIT: 200,
    }
    names, slowest_us = status.slowest
    assert slowest_us == 300
    assert "Pair" in names


def test_tasks_in_several_waves_do_not_take_more_than_their_job() -> None:
    parts_us = after(report(0, {}, spent_us=9_000)).parts_us
    assert (parts_us[EpochPart.TASKS], parts_us[EpochPart.SPARK]) == (700, 0)
    assert sum(parts_us.values()) == TOOK.total_us


def test_of_groups_the_largest_one_counts() -> None:
    status = after(
        report(0, {}, level=1, stored_bytes=1, group_bytes=7),
        report(1, {}, level=1, stored_bytes=1, group_bytes=5),
        report(0, {}, level=2, stored_bytes=1),
    )
    assert [*status.group_bytes.values()] == [7]


def test_what_is_stored_is_summed_up_by_level() -> None:
    status = after(
        report(0, {}, level=1, stored_bytes=4_096),
        report(1, {}, level=1, stored_bytes=8_192),
        report(0, {}, level=2, stored_bytes=1),
    )
    assert sorted(status.stored_bytes.values()) == [1, 12_288]
    assert any("Read/Process" in names for names in status.stored_bytes)


def test_of_records_the_sum_is_known_and_of_timers_the_first_one() -> None:
    status = after(
        report(0, {}, level=1, stored_bytes=1, stored_records=3),
        report(1, {}, level=1, stored_bytes=1, stored_records=4, next_event_us=9),
        report(2, {}, level=1, stored_bytes=1, stored_records=0, next_event_us=7),
    )
    (state,) = status.stored_state.values()
    assert state == LevelState(records=7, next_event_us=7, next_clock_us=None)
