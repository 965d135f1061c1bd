"""What a manifest says, by what tasks report."""

from collections.abc import Collection
from typing import Any

import pytest

from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.driving.epoch_manifest import manifest_after
from beam_spark_runner.graph.passes import STREAMING, run_passes
from beam_spark_runner.plan.build import build
from beam_spark_runner.recovery.heads import DeltaId, Head
from beam_spark_runner.recovery.manifest import Manifest, View, ViewId
from beam_spark_runner.scheduling.attempts import Report, ShardReport, ViewReport
from beam_spark_runner.scheduling.epochs import Epoch
from beam_spark_runner.scheduling.finish import Finishing
from tests.golden.notation import parse

GATHERS = 9
EVENTS = "Events: test_stream() -> events\nPair: pardo(events) -> pairs @py"
FINISHING = Finishing(build(run_passes(parse(EVENTS), STREAMING), is_streaming=True), partitions=2)
LAGS = 8
LAST = Manifest(
    epoch=4,
    fence=1,
    lineage="main",
    parent=3,
    partitions=2,
    key_groups=128,
    watermarks_us={GATHERS: 50, LAGS: 40},
    views={
        ViewId(GATHERS, b"old"): View("old.view", 60),
        ViewId(GATHERS, b"new"): View("new.view", 70),
    },
)


def shard(**fields: Any) -> ShardReport:
    return ShardReport(
        **{"epoch": 0, "attempt": 0, "next_event_us": None, "next_clock_us": None, **fields}
    )


def after(*reports: Report, lags: Collection[int] = ()) -> Manifest:
    epoch = Epoch(number=5, clock_us=7, events=2, feeds_impulses=False)
    return manifest_after(
        LAST,
        epoch,
        reports,
        metrics=(b"m",),
        unwritten=(),
        finishing=FINISHING,
        lags=lags,
    )


def task(partition: int = 0, **fields: Any) -> Report:
    return Report(level=1, partition=partition, attempt=3, **fields)


def test_heads_of_shards_that_have_something() -> None:
    manifest = after(
        task(0, shard=shard(epoch=5, attempt=3, older=((2, 9),))),
        task(1, shard=shard()),
        Report(level=0, partition=0, attempt=3),
    )
    assert manifest.heads == {(1, 0): Head(DeltaId(5, 3), (DeltaId(2, 9),))}
    assert (manifest.epoch, manifest.parent, manifest.clock_us, manifest.events) == (5, 4, 7, 2)


def test_the_least_of_all_times() -> None:
    manifest = after(
        task(0, shard=shard(next_event_us=8, next_clock_us=30), watermarks_us={1: 4, 2: 5}),
        task(1, shard=shard(next_event_us=9), watermarks_us={1: 3}),
    )
    assert manifest.watermarks_us == {**LAST.watermarks_us, 1: 3, 2: 5}
    assert (manifest.next_event_us, manifest.next_clock_us) == (8, 30)


@pytest.mark.parametrize(
    ("reported", "is_due"),
    [
        pytest.param({"watermarks_us": {GATHERS: 50}}, False, id="nothing has moved"),
        pytest.param({"watermarks_us": {GATHERS: 59}}, False, id="the window goes on"),
        pytest.param({"watermarks_us": {GATHERS: 60}}, False, id="it has elements at its end"),
        pytest.param({"watermarks_us": {GATHERS: 61}}, True, id="it has ended"),
        pytest.param({"watermarks_us": {LAGS: 61, GATHERS: 59}}, False, id="of something else"),
        pytest.param(
            {
                "watermarks_us": {GATHERS: 50},
                "views": (ViewReport(GATHERS, b"new", "newer.view", 70),),
            },
            True,
            id="a pane has fired",
        ),
    ],
)
def test_who_waits_is_due_when_the_side_input_may_be_ready(reported: Any, is_due: bool) -> None:
    assert after(task(shard=shard(awaited_us={GATHERS: 60}), **reported)).is_due is is_due
    assert not after(task(shard=shard(), **reported)).is_due


def test_who_waits_for_several_side_inputs_is_due_when_one_may_be_ready() -> None:
    """The window of the other one is waited for alone, then, and makes nothing due."""
    moved: dict[str, Any] = {"watermarks_us": {GATHERS: 61, LAGS: 41}}
    assert after(task(shard=shard(awaited_us={GATHERS: 60, LAGS: 90}), **moved)).is_due
    assert not after(task(shard=shard(awaited_us={LAGS: 90}), **moved)).is_due


def test_stable_input_that_waits_is_due() -> None:
    assert after(task(shard=shard(awaits_commit=True))).is_due


@pytest.mark.parametrize(
    ("watermark_us", "next_clock_us"),
    [
        pytest.param(40, None, id="it has seen it already"),
        pytest.param(41, 7, id="it comes there in another epoch"),
        pytest.param(MAX_US, 7, id="to its end, too"),
    ],
)
def test_a_watermark_that_a_step_with_stable_input_has_not_seen(
    watermark_us: int, next_clock_us: int | None
) -> None:
    manifest = after(task(watermarks_us={LAGS: watermark_us}), lags={LAGS})
    assert (manifest.next_clock_us, manifest.is_due) == (next_clock_us, False)
    assert not manifest.is_final


def test_timers_that_were_interrupted_are_due() -> None:
    assert after(task(shard=shard(was_interrupted=True))).is_due


@pytest.mark.parametrize(
    ("looks_up_us", "left"), [(60, {b"old", b"new"}), (61, {b"new"}), (71, set())]
)
def test_views_that_have_expired_for_all_tasks_go(looks_up_us: int, left: set[bytes]) -> None:
    reports = task(0, looks_up_us={GATHERS: 90}), task(1, looks_up_us={GATHERS: looks_up_us})
    assert {id_.window for id_ in after(*reports).views} == left


def test_a_new_pane_replaces_the_one_before_it() -> None:
    pane = ViewReport(GATHERS, b"new", "newer.view", 70)
    manifest = after(task(views=(pane,), looks_up_us={GATHERS: 0}))
    assert manifest.views[ViewId(GATHERS, b"new")] == View("newer.view", 70)
    assert manifest.views[ViewId(GATHERS, b"old")] == LAST.views[ViewId(GATHERS, b"old")]


def test_parts_of_a_window_are_replaced_and_expire_each_for_itself() -> None:
    parts = [
        ViewReport(GATHERS, b"new", file, 80, part) for part, file in ((b"a", "1"), (b"b", "2"))
    ]
    manifest = after(
        task(0, views=tuple(parts[:1]), looks_up_us={GATHERS: 65}), task(1, views=tuple(parts[1:]))
    )
    assert manifest.views == {
        ViewId(GATHERS, b"new"): View("new.view", 70),
        ViewId(GATHERS, b"new", b"a"): View("1", 80),
        ViewId(GATHERS, b"new", b"b"): View("2", 80),
    }


def test_what_has_finished_runs_no_more_and_stays_as_it_was() -> None:
    finished = after(task(finished=frozenset({1}), watermarks_us={1: MAX_US}))
    assert finished.finished == {1: {0}}
    assert finished.is_final
    assert not after(task(watermarks_us={1: MAX_US})).is_final
    assert after().watermarks_us == LAST.watermarks_us


def test_views_that_nobody_looks_up_any_more_go() -> None:
    assert not after(task()).views
