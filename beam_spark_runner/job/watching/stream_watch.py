"""The status of a running streaming pipeline: its watermarks, rates, log lines and warnings."""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from apache_beam.portability.api import metrics_pb2
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner.core import urns
from beam_spark_runner.graph.facts import users_steps
from beam_spark_runner.job.watching.messages import JobMessages
from beam_spark_runner.job.watching.partition_advice import PartitionAdvice
from beam_spark_runner.observing.epoch_history import EpochHistory
from beam_spark_runner.observing.epoch_status import EpochPart, EpochStatus
from beam_spark_runner.observing.line_parts import SEPARATOR
from beam_spark_runner.observing.made_savepoints import MadeSavepoint
from beam_spark_runner.observing.step_rates import StepRates
from beam_spark_runner.observing.stream_line import StreamLine, rates_text
from beam_spark_runner.observing.troubles import TroubleKind, Troubles
from beam_spark_runner.observing.warnings import StreamWarnings
from beam_spark_runner.plan.model import Plan
from beam_spark_runner.portable.monitoring import element_counts, watermark_gauges

_LINE_EVERY_S = 60.0
_MAX_SAVEPOINTS = 20
_COUNTS_EVERY_S = 1.0  # parsing all metrics takes a part of a short epoch
_SOURCES = (urns.SDF_PROCESS_SIZED_ELEMENT_AND_RESTRICTIONS, urns.TEST_STREAM)


class StepWatermarks(NamedTuple):
    """The watermarks of a step.

    Attributes:
        input: The input watermark: elements with earlier timestamps may be late.
        output: The output watermark, which the steps downstream see.
    """

    input: Timestamp
    output: Timestamp


class StreamWatch:
    """Stores the status of the last epoch, warns, and logs a line once a minute.

    Threads: one calls ``note_epoch``, any may read.

    Args:
        plan: The plan of the pipeline.
        messages: Gets the log lines and warnings.
        interval_us: The interval between epochs, in microseconds.
        committed: Returns the committed metrics: serialised MonitoringInfos.
        partitions: Gets the load of each epoch.
        also: Is called with the status of each epoch, too.
        now_s: The monotonic clock, in seconds.

    Attributes:
        status: The status after the last epoch. None: this run has committed no epoch yet.
        took_us: The time of all epochs of this run in microseconds, by its part.
        failed_commits: How many commits of this run have failed.
        history: The latest epochs.
        savepoints: The latest savepoints of this run.
        troubles: What goes wrong, also of a batch pipeline.
        partitions: How many partitions the stream should have.
    """

    def __init__(
        self,
        plan: Plan,
        messages: JobMessages,
        interval_us: int,
        committed: Callable[[], Iterable[bytes]],
        partitions: PartitionAdvice,
        also: Callable[[EpochStatus], None] = lambda status: None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.status: EpochStatus | None = None
        self.took_us = dict.fromkeys(EpochPart, 0)
        self.failed_commits = 0
        self.history = EpochHistory()
        self.troubles = Troubles()
        self.savepoints: tuple[MadeSavepoint, ...] = ()
        self.partitions = partitions
        self._messages, self._committed, self._now_s = messages, committed, now_s
        self._also = also
        self._ids = {step.name: str(id_) for id_, step in plan.graph.transforms.items()}
        sources = [
            transform for transform in plan.graph.transforms.values() if transform.urn in _SOURCES
        ]
        self._source_outputs = frozenset(
            id_ for transform in sources for id_ in transform.outputs.values()
        )
        self._sources = sorted({transform.name for transform in sources})
        self._producers = {
            str(id_): transform.name
            for transform in plan.graph.transforms.values()
            for id_ in transform.outputs.values()
        }
        self._rates, self._backlogs = StepRates(), StepRates()
        self._next_counts_s = self._committed_s = now_s()
        self._emits: float | None = None  # elements per second, of all sources
        self._plays = any(transform.urn == urns.TEST_STREAM for transform in sources)
        self._warnings = StreamWarnings(messages.warn, interval_us)
        self._logged = StreamLine(users_steps(plan.graph))
        self._next_line_s = now_s() + _LINE_EVERY_S

    def note_epoch(self, status: EpochStatus) -> None:
        """Update rates, warnings and log with the status of an epoch that is committed."""
        for part, took_us in status.parts_us.items():
            self.took_us[part] += took_us
        self.status = status
        self.history.note(status)
        self.troubles.end(TroubleKind.STORAGE)
        self._committed_s = now_s = self._now_s()
        if now_s >= self._next_counts_s:
            self._next_counts_s = now_s + _COUNTS_EVERY_S
            self._rates.note(self._counts_by_step(), now_s)
            self._backlogs.note(_backlogs_of(status), now_s)
            rates = self.rates()
            self._emits = sum(rates.get(name, 0.0) for name in self._sources) if rates else None
        if not self._plays:
            backlogs = _backlogs_of(status).values()
            self.partitions.note(status, now_s, self._emits, sum(backlogs) if backlogs else None)
        self._warnings.after_epoch(status, now_s)
        self._also(status)
        if now_s >= self._next_line_s:
            self._next_line_s = now_s + _LINE_EVERY_S
            self._messages.inform(SEPARATOR.join(self.parts(self._logged, has_age=False)))
            if rates := self.rates():
                self._messages.inform(f"elements/s of each step: {rates_text(rates)}")

    def note_failed_commit(self) -> None:
        """Note that storage has refused a commit, which is tried again."""
        self.failed_commits += 1

    def note_savepoint(self, savepoint: MadeSavepoint) -> None:
        """Remember a savepoint. Threads: any."""
        savepoints = sorted((*self.savepoints, savepoint), key=lambda made: made.at_s)
        self.savepoints = tuple(savepoints[-_MAX_SAVEPOINTS:])

    def forget_savepoints(self, paths: Collection[str]) -> None:
        """Forget savepoints that were removed. Threads: any."""
        self.savepoints = tuple(made for made in self.savepoints if made.path not in paths)

    def note_trouble(self, kind: TroubleKind, text: str) -> None:
        """Warn of what goes wrong, and what the job survives."""
        self.troubles.note(kind, text, time.time())
        self._messages.warn(text)

    def processing_time_s(self) -> float:
        """Return the processing time, Unix time. A TestStream has its own clock."""
        status = self.status
        return status.clock_us / 1e6 if status and self._plays else time.time()

    def epoch_age_s(self) -> float:
        """Return the seconds since this run has committed an epoch, or since its start."""
        return self._now_s() - self._committed_s

    def backlog_slopes(self) -> dict[str, float]:
        """Return by how much the backlog of each source grows in a second, over ten seconds.

        Returns:
            By the full name of the step, in the unit of its backlog. Empty until two are known.
        """
        slopes, status = self._backlogs.per_second(self._now_s()), self.status
        present = {} if status is None else _backlogs_of(status)
        return {name: slope for name, slope in slopes.items() if name in present}

    def note_idle(self) -> None:
        """Warn of blocked steps while no epoch is due."""
        if self.status is not None:
            self._warnings.while_idle(self.status, self._now_s())

    def parts(self, line: StreamLine, *, has_age: bool = True) -> Sequence[str]:
        """Return the parts of the current line of status.

        Args:
            line: Computes rates since its earlier calls.
            has_age: Whether the line says how long ago the last epoch was committed.
        """
        status, now_us = self.status, round(self.processing_time_s() * 1e6)
        counts = element_counts(self._committed())
        emitted = sum(counts.get(collection, 0) for collection in self._source_outputs)
        rates, now_s = self.rates(), self._now_s()
        return line.parts(
            status,
            now_us=now_us,
            elements=emitted,
            now_s=now_s,
            commit_age_s=now_s - self._committed_s if has_age else None,
            sources={name: rates[name] for name in self._sources if name in rates},
        )

    def commit_age_s(self) -> float | None:
        """Return the time since the last commit in seconds. None: there was none."""
        return None if self.status is None else self._now_s() - self._committed_s

    def rates(self) -> dict[str, float]:
        """Return the elements per second that each step has emitted, over the last ten seconds.

        Returns:
            Rates by the full name of the step. Empty until there are counts of two epochs.
        """
        return self._rates.per_second(self._now_s())

    def _counts_by_step(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for collection, count in element_counts(self._committed()).items():
            if (name := self._producers.get(collection)) is not None:  # else one of the runner's
                counts[name] = counts.get(name, 0) + count
        return counts

    def watermark_gauges(self) -> list[metrics_pb2.MonitoringInfo]:
        """Return the watermarks of all steps as gauges; see ``monitoring.watermark_gauges``."""
        status = self.status
        if status is None:
            return []
        return [
            gauge
            for name, step in status.steps.items()
            for gauge in watermark_gauges(
                self._ids.get(name, name), step.input_us, step.output_us, status.clock_us // 1_000
            )
        ]

    def watermarks(self) -> dict[str, StepWatermarks]:
        """See ``SparkPipelineResult.watermarks``."""
        status = self.status
        return {
            name: StepWatermarks(Timestamp(micros=step.input_us), Timestamp(micros=step.output_us))
            for name, step in ({} if status is None else status.steps).items()
        }


def _backlogs_of(status: EpochStatus) -> dict[str, int]:
    steps = status.steps.items()
    return {name: round(step.backlog) for name, step in steps if step.backlog is not None}
