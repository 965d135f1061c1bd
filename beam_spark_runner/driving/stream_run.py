"""Runs a streaming plan: the loop over epochs, with the plan's own segments and status."""

import functools
import logging
from collections.abc import Sequence
from dataclasses import replace

from beam_spark_runner.core import urns
from beam_spark_runner.driving.clock import Clock
from beam_spark_runner.driving.cluster import Cluster
from beam_spark_runner.driving.epoch_loop import EpochLoop
from beam_spark_runner.driving.epoch_protocols import EpochSchedule, InPartitions
from beam_spark_runner.driving.epoch_segments import EpochSegments
from beam_spark_runner.driving.playback import Events, Playback
from beam_spark_runner.driving.program_builder import ProgramBuilder
from beam_spark_runner.driving.run_context import RunMetrics, RunSettings
from beam_spark_runner.driving.stream_rules import rules_of
from beam_spark_runner.observing.epoch_status import EpochTimes
from beam_spark_runner.observing.stream_status import StreamStatus
from beam_spark_runner.plan.model import Plan
from beam_spark_runner.recovery.driver_start import Checkpoints
from beam_spark_runner.recovery.manifest import Manifest
from beam_spark_runner.scheduling.attempts import Report

_LOGGER = logging.getLogger(__name__)


def run_epochs(
    plan: Plan,
    settings: RunSettings,
    cluster: Cluster,
    tally: RunMetrics,
    checkpoints: Checkpoints,
    pace: EpochSchedule,
    clock: Clock,
    events: Events | None,
) -> bool:
    """Run epochs until the pipeline is done; continue after the newest one that is committed.

    Args:
        plan: the streaming plan.
        settings: how it runs.
        cluster: on which it runs.
        tally: gets its metrics.
        checkpoints: where epochs are committed.
        pace: when epochs run.
        clock: of this machine.
        events: the events of the plan's TestStreams; None: it has none.

    Returns:
        Whether the pipeline was drained, in this run or an earlier one.

    Raises:
        RunnerError: see ``EpochLoop`` and its ``run``.
    """
    if not plan.segments:  # a TestStream, and nothing that reads it
        return pace.drains()
    builder = ProgramBuilder(plan, settings.job_id, settings.limits, settings.epoch)

    def in_partitions(number: int) -> InPartitions:
        return InPartitions(
            rules_of(plan, number, checkpoints.renamed),
            EpochSegments(
                plan,
                replace(settings, least_partitions=number),
                cluster,
                tally,
                clock,
                functools.partial(builder.of_epoch, number),
            ),
        )

    loop = EpochLoop(
        in_partitions,
        settings,
        cluster,
        _Reporting(plan, settings, tally),
        checkpoints,
        pace,
        clock,
        _playback(plan, settings, events),
    )
    return loop.run()


class _Reporting:
    """See ``EpochObserver``: it passes metrics and status on to the job."""

    def __init__(self, plan: Plan, settings: RunSettings, tally: RunMetrics) -> None:
        self._settings, self._tally = settings, tally
        self._status = StreamStatus(plan)
        self._metrics_of = plan.segments[0].id  # under it are the metrics of all segments

    def continues(self, manifest: Manifest) -> None:
        _LOGGER.info("continuing after epoch %d", manifest.epoch)
        self._settings.on_continue(f"epoch {manifest.epoch:,}")

    def merged(self, before: Sequence[bytes], infos: Sequence[bytes]) -> tuple[bytes, ...]:
        return self._tally.merged([*before, *infos])

    def committed(self, manifest: Manifest) -> None:
        self._tally.accepted[self._metrics_of] = manifest.metrics

    def took(self, manifest: Manifest, reports: Sequence[Report], took: EpochTimes) -> None:
        self._settings.observer.accepted(reports)
        status = self._status.status_after(
            manifest.epoch,
            reports,
            clock_us=manifest.clock_us,
            watermarks_us=manifest.watermarks_us,
            finished=manifest.finished,
            took=took,
        )
        status = replace(status, start=manifest.fence, partitions=manifest.partitions)
        self._settings.on_epoch(status)


def _playback(plan: Plan, settings: RunSettings, events: Events | None) -> Playback | None:
    """Return how far the plan's TestStreams are played. None: it has none."""
    streams = [each for each in plan.graph.transforms.values() if each.urn == urns.TEST_STREAM]
    if not streams:
        return None
    assert events is not None
    outputs = [output for each in streams for output in each.outputs.values()]
    steps = ", ".join(each.name for each in streams)
    return Playback(events, outputs, steps, settings.check_cancelled)
