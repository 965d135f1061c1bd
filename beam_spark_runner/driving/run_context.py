"""Settings of a run, its observer, and its metrics."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from apache_beam.portability.api import metrics_pb2

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.core.ids import SegmentId
from beam_spark_runner.engine.limits import Limits
from beam_spark_runner.engine.program import EpochPart, ShardLocations
from beam_spark_runner.observing.epoch_status import EpochStatus
from beam_spark_runner.observing.troubles import TroubleKind
from beam_spark_runner.portable.monitoring import merge, name_of, warn_of_dropped
from beam_spark_runner.scheduling.attempts import Report

_LOGGER = logging.getLogger(__name__)
_MAX_NAMED = 1_000
"""How many metrics that are dropped are named for one job."""
_MAX_UNMERGED = 1_000
"""How many metrics wait until someone asks for them; to merge them takes 10 us for each."""


def log_trouble(kind: TroubleKind, text: str) -> None:
    """Log what goes wrong, and what the run survives."""
    _LOGGER.warning("%s", text)


class Observer(Protocol):
    """Is notified of Spark jobs as they run. Methods do not raise, and decide nothing."""

    def began(self, run: int, *, is_additional: bool = False) -> None:
        """A Spark job begins; what tasks of earlier ones still report is void.

        Args:
            run: its number; in a streaming pipeline, that of its epoch.
            is_additional: the previous one still runs, and its tasks' reports are not void.
        """
        ...

    def reported(self, reports: Sequence[Report]) -> None:
        """The Spark job has ended, and its metrics are counted as attempted."""
        ...

    def accepted(self, reports: Sequence[Report]) -> None:
        """The output of these attempts is committed, as durably as Spark stores it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """How a plan runs, on any cluster."""

    job_id: str
    least_partitions: int  # of each exchange
    most_partitions: int
    counts_bytes: bool  # more partitions for more data; False: the user has set their number
    limits: Limits
    check_cancelled: Callable[[], None]  # raises if the job is to end
    observer: Observer
    round_budget_s: float | None  # see ``scheduling.rounds``; None: no rounds
    longest_round_s: float | None = None  # the longest budget of a round; None: there is no limit
    single_task_budget_s: float  # see ``task.first_task``; 0: segments have no such task
    job_name: str | None = None  # the user's
    epoch: EpochPart | None = None  # set if the plan streams
    # Returns the number of partitions that should follow this one. None: it stays.
    rescaled: Callable[[int], int] | None = None
    on_epoch: Callable[[EpochStatus], None] = lambda status: None  # is called after each commit
    on_segment: Callable[[SegmentId], None] = lambda segment: None  # is called before each one
    on_continue: Callable[[str], None] = lambda after: None  # is called with what was committed
    # Is called with what goes wrong, and what the run survives.
    on_trouble: Callable[[TroubleKind, str], None] = log_trouble
    on_idle: Callable[[], None] = lambda: None  # is called while nothing is due, now and then

    @property
    def shards(self) -> ShardLocations:
        """Where the tasks of a streaming plan have their shards."""
        if self.epoch is None:
            raise InvariantError("the plan does not stream")
        return self.epoch.shards


@dataclass(slots=True)
class RunMetrics:
    """Metrics of accepted output, and of all attempts (serialised MonitoringInfos).

    Threads: one writes, any may read.
    """

    accepted: dict[SegmentId, tuple[bytes, ...]] = field(default_factory=dict)
    _attempted: tuple[bytes, ...] = ()
    _dropped: set[str] = field(default_factory=set)  # names of metrics that a warning has named
    # What was merged last, and the result: without a failure, both kinds of an epoch are the same.
    _last: tuple[tuple[bytes, ...], tuple[bytes, ...]] = ((), ())

    @property
    def committed(self) -> tuple[bytes, ...]:
        """The metrics of accepted output: a segment counts once, however often it ran."""
        return self.merged(info for infos in list(self.accepted.values()) for info in infos)

    @property
    def attempted(self) -> tuple[bytes, ...]:
        """The metrics of all attempts."""
        return self.merged(self._attempted)

    def attempt(self, infos: Iterable[bytes]) -> None:
        """Add the metrics of attempts."""
        self._attempted = self.bounded((*self._attempted, *infos))

    def accept(self, segment: SegmentId, infos: Sequence[bytes]) -> None:
        """Set the metrics of a segment's accepted output."""
        self.accepted[segment] = self.bounded(infos)

    def bounded(self, infos: Sequence[bytes]) -> tuple[bytes, ...]:
        """Return metrics, merged if they are many."""
        return self.merged(infos) if len(infos) > _MAX_UNMERGED else tuple(infos)

    def merged(self, infos: Iterable[bytes]) -> tuple[bytes, ...]:
        """See ``monitoring.merge``. Each metric that is dropped is named in one warning."""
        given = tuple(infos)
        last, merged = self._last
        if given != last:
            merged = merge(given, self._warn_once)
            self._last = given, merged
        return merged

    def _warn_once(self, info: metrics_pb2.MonitoringInfo, problem: str) -> None:
        name = name_of(info)
        if name not in self._dropped and len(self._dropped) < _MAX_NAMED:
            self._dropped.add(name)
            warn_of_dropped(info, problem)
