"""Makes the manifest of an epoch from its reports, and the progress from a manifest."""

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from beam_spark_runner.core.time import MIN_US
from beam_spark_runner.recovery.epoch_writes import EpochWrite
from beam_spark_runner.recovery.heads import DeltaId, Head, KeyedHead
from beam_spark_runner.recovery.manifest import Manifest, View, ViewId
from beam_spark_runner.scheduling.attempts import KeyedReport, Report, ShardReport
from beam_spark_runner.scheduling.epochs import Epoch, Progress
from beam_spark_runner.scheduling.finish import Finishing
from beam_spark_runner.semantics.watermarks import least


def manifest_after(
    last: Manifest,
    epoch: Epoch,
    reports: Sequence[Report],
    *,
    metrics: tuple[bytes, ...],
    unwritten: tuple[EpochWrite, ...],
    finishing: Finishing,
    lags: Collection[int],
) -> Manifest:
    """Return the manifest of an epoch.

    Args:
        last: the manifest before it.
        epoch: the epoch.
        reports: the reports of the accepted attempts, one for each task.
        metrics: serialised MonitoringInfos of all epochs.
        unwritten: what tables get once the epoch is committed.
        finishing: the rules for the plan. Finished levels have not run, and report nothing.
        lags: destinations of steps that require stable input: they reach a watermark in the
            epoch after the one that has committed it.
    """
    shards = [report.shard for report in reports if report.shard is not None]
    events = [each.next_event_us for each in shards if each.next_event_us is not None]
    clocks = [each.next_clock_us for each in shards if each.next_clock_us is not None]
    watermarks_us = {**last.watermarks_us, **least(report.watermarks_us for report in reports)}
    finished = finishing.finished_after(last.finished, reports)
    changed = {
        ViewId(view.dest, view.window, view.part): View(view.file, view.expires_us)
        for report in reports
        for view in report.views
    }
    fired = {id_.dest for id_ in changed}
    looks_up_us = least(report.looks_up_us for report in reports)
    # A pane may be of another window than that which elements wait for: they look again.
    may_be_ready = any(
        dest in fired or watermarks_us.get(dest, MIN_US) > end_us
        for each in shards
        for dest, end_us in each.awaited_us.items()
    )
    was_interrupted = any(each.was_interrupted for each in shards)
    awaits_commit = any(each.awaits_commit for each in shards)
    # Truncated restrictions are due at once: next_clock_us, from their times, is too late.
    is_behind = epoch.drains and any(each.was_cut_off for each in shards)
    if any(watermarks_us.get(dest) != last.watermarks_us.get(dest, MIN_US) for dest in lags):
        clocks.append(epoch.clock_us)  # the next epoch is due, at its usual time
    return dataclasses.replace(
        last,
        epoch=epoch.number,
        parent=last.epoch,
        unfed=(),
        clock_us=epoch.clock_us,
        events=epoch.events,
        heads={
            (report.level, report.partition): Head(
                DeltaId(shard.epoch, shard.attempt), tuple(DeltaId(*each) for each in shard.older)
            )
            for report in reports
            if (shard := report.shard) is not None and shard.epoch
        },
        keyed={
            (each.store, report.partition): _keyed_head(each, last, report.partition)
            for report in reports
            if report.shard is not None
            for each in report.shard.keyed
            if each.epoch or each.needs_parts
        },
        needs=_needs(last, shards),
        watermarks_us=watermarks_us,
        next_event_us=min(events, default=None),
        next_clock_us=min(clocks, default=None),
        is_due=was_interrupted or awaits_commit or is_behind or may_be_ready,
        views={
            id_: view
            for id_, view in {**last.views, **changed}.items()
            if id_.dest in looks_up_us and looks_up_us[id_.dest] <= view.expires_us
        },
        metrics=metrics,
        unwritten=unwritten,
        finished=finished,
        is_final=not finishing.levels(finished),
        drains=epoch.drains,
    )


def _needs(last: Manifest, shards: Sequence[ShardReport]) -> Mapping[str, tuple[str, ...]]:
    """Return with what stored records continue, by the names of their stages."""
    found: dict[int, set[str]] = defaultdict(set)
    for shard in shards:
        for stage, needs in shard.needs.items():
            found[stage] |= needs
    return {
        name: tuple(sorted(found[place.stage]))
        for name, place in last.plan.items()
        if place.stage in found
    }


def _keyed_head(report: KeyedReport, last: Manifest, partition: int) -> KeyedHead:
    own = None
    if report.epoch:
        older = tuple(DeltaId(*each) for each in report.older)
        own = Head(DeltaId(report.epoch, report.attempt), older)
    parts = last.keyed[report.store, partition].parts if report.needs_parts else ()
    return KeyedHead(own, parts)


def progress_of(last: Manifest) -> Progress:
    """Return the progress of a pipeline, as its last manifest has it."""
    return Progress(
        epoch=last.epoch,
        clock_us=last.clock_us,
        events=last.events,
        next_clock_us=last.next_clock_us,
        is_due=last.is_due,
        is_final=last.is_final,
        drains=last.drains,
    )
