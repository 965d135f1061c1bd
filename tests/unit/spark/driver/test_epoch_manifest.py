"""What a manifest says, by what tasks report."""

from typing import Any

import pytest

from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.recovery.manifest import Head, Manifest, View
from beam_spark_runner.scheduling.attempts import Report, ShardReport, ViewReport
from beam_spark_runner.scheduling.epochs import Epoch
from beam_spark_runner.spark.driver.epoch_manifest import manifest_after

GATHERS = 9
LAST = Manifest(
    epoch=4,
    fence=1,
    lineage="main",
    parent=3,
    partitions=2,
    watermarks_us={GATHERS: 50},
    views={(GATHERS, b"old"): View("old.view", 60), (GATHERS, b"new"): View("new.view", 70)},
)


def shard(**fields: Any) -> ShardReport:
    return ShardReport(
        **{"epoch": 0, "attempt": 0, "next_event_us": None, "next_clock_us": None, **fields}
    )


def after(*reports: Report, has_more_events: bool = False) -> Manifest:
    epoch = Epoch(number=5, clock_us=7, events=2, feeds_impulses=False)
    return manifest_after(
        LAST,
        epoch,
        reports,
        metrics=(b"m",),
        has_more_events=has_more_events,
        gathers={GATHERS},
    )


def task(partition: int = 0, **fields: Any) -> Report:
    return Report(level=1, partition=partition, attempt=3, **fields)


def test_heads_of_shards_that_have_something() -> None:
    manifest = after(
        task(0, shard=shard(epoch=5, attempt=3, base=2)),
        task(1, shard=shard()),
        Report(level=0, partition=0, attempt=3),
    )
    assert manifest.heads == {(1, 0): Head(5, 3, 2)}
    assert (manifest.epoch, manifest.parent, manifest.clock_us, manifest.events) == (5, 4, 7, 2)


def test_the_least_of_all_times() -> None:
    manifest = after(
        task(0, shard=shard(next_event_us=8, next_clock_us=30), watermarks_us={1: 4, 2: 5}),
        task(1, shard=shard(next_event_us=9), watermarks_us={1: 3}),
    )
    assert manifest.watermarks_us == {1: 3, 2: 5}
    assert (manifest.next_event_us, manifest.next_clock_us) == (8, 30)


@pytest.mark.parametrize(
    ("reported", "is_due"),
    [
        pytest.param({"watermarks_us": {GATHERS: 50}}, False, id="nothing has moved"),
        pytest.param({"watermarks_us": {GATHERS: 51}}, True, id="a watermark has"),
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
def test_who_waits_is_due_when_side_inputs_move(reported: Any, is_due: bool) -> None:
    assert after(task(shard=shard(awaits_views=True), **reported)).is_due is is_due
    assert not after(task(shard=shard(), **reported)).is_due


def test_timers_that_were_interrupted_are_due() -> None:
    assert after(task(shard=shard(was_interrupted=True))).is_due


@pytest.mark.parametrize(
    ("looks_up_us", "left"), [(60, {b"old", b"new"}), (61, {b"new"}), (71, set())]
)
def test_views_that_have_expired_for_all_tasks_go(looks_up_us: int, left: set[bytes]) -> None:
    reports = task(0, looks_up_us={GATHERS: 90}), task(1, looks_up_us={GATHERS: looks_up_us})
    assert {window for _, window in after(*reports).views} == left


def test_a_new_pane_replaces_the_one_before_it() -> None:
    manifest = after(task(views=(ViewReport(GATHERS, b"new", "newer.view", 70),)))
    assert manifest.views[GATHERS, b"new"] == View("newer.view", 70)
    assert manifest.views[GATHERS, b"old"] == LAST.views[GATHERS, b"old"]


@pytest.mark.parametrize(
    ("reported", "is_final"),
    [
        pytest.param({}, True, id="nothing is left"),
        pytest.param({"watermarks_us": {1: 5}}, False, id="an input has not come to its end"),
        pytest.param({"shard": shard(next_event_us=MAX_US)}, False, id="a timer"),
        pytest.param({"shard": shard(next_clock_us=1)}, False, id="a residual"),
        pytest.param({"shard": shard(awaits_views=True)}, False, id="elements that wait"),
    ],
)
def test_when_a_pipeline_is_done(reported: Any, is_final: bool) -> None:
    reports = task(0, watermarks_us={1: MAX_US}), task(1, **reported)
    assert after(*reports).is_final is is_final
    assert not after(*reports, has_more_events=True).is_final
