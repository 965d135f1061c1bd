"""What the loop over epochs needs: when epochs run, who runs them, and who is notified."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from beam_spark_runner.driving.clock import Background
from beam_spark_runner.driving.stream_rules import StreamRules
from beam_spark_runner.engine.rows.driver_rows import Rows
from beam_spark_runner.observing.epoch_status import EpochTimes
from beam_spark_runner.recovery.manifest import Manifest
from beam_spark_runner.scheduling.attempts import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochSchedule:
    """When epochs run.

    Attributes:
        interval_us: how long an epoch should take; also the least time between the starts of two
            epochs, while sources have no more elements.
        sleep: sleeps for so many seconds, or until the job is to end or to be drained.
        wait: sleeps for so many seconds, or until the job is to end.
        drains: whether the job is to be drained.
        drain: requests a drain, to complete that of an earlier run.
        background: deletes files that a commit has superseded, while the next epoch runs.
    """

    interval_us: int
    sleep: Callable[[float], object]
    wait: Callable[[float], object]
    drains: Callable[[], bool]
    drain: Callable[[], None]
    background: Background


class EpochRunner(Protocol):
    """Runs the tasks of epochs.

    Attributes:
        planning_ns: the time that it took to submit the jobs of the last epoch.
    """

    planning_ns: int

    def run(self, number: int, fence: int, rows: Rows, levels: range) -> Sequence[Report]:
        """Run an epoch until its output is accepted; see ``EpochSegments.run``."""
        ...


class InPartitions(NamedTuple):
    """What runs the epochs of a plan in a certain number of partitions."""

    rules: StreamRules
    runner: EpochRunner


class EpochObserver(Protocol):
    """Is notified of commits. Methods do not raise."""

    def continues(self, manifest: Manifest) -> None:
        """The pipeline continues after the last commit of an earlier run."""
        ...

    def merged(self, before: Sequence[bytes], infos: Sequence[bytes]) -> tuple[bytes, ...]:
        """Return the metrics of all epochs.

        Args:
            before: those of all epochs before.
            infos: those of the tasks of an epoch: serialised MonitoringInfos.
        """
        ...

    def committed(self, manifest: Manifest) -> None:
        """An epoch is committed, by this driver or an earlier start of it."""
        ...

    def took(self, manifest: Manifest, reports: Sequence[Report], took: EpochTimes) -> None:
        """This driver has committed an epoch.

        Args:
            manifest: its manifest.
            reports: those of its accepted tasks.
            took: how long its parts took.
        """
        ...
