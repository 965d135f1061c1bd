"""The progress line of a batch pipeline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from beam_spark_runner.core.ids import SegmentId, StageId
from beam_spark_runner.graph.facts import users_steps
from beam_spark_runner.observing.line_parts import bar, shorten, time_text
from beam_spark_runner.plan.model import Delivery, Plan, Stage

_ESTIMATE_FROM = 0.1  # of the work must be done before the rest can be estimated,
_ESTIMATE_AFTER_S = 10.0  # and this time be over
_STEP_WIDTH = 30


@dataclass(frozen=True, slots=True)
class Counts:
    """The progress of the Spark jobs that run now.

    Attributes:
        stages_done: The number of Spark stages that are complete.
        stages: The number of Spark stages.
        tasks_done: The number of tasks that are complete, in all stages.
        tasks: The number of tasks.
        read: The rows that the current stage has read from its exchange. None: not known.
        to_read: The rows of this exchange. None: not known.
    """

    stages_done: int
    stages: int
    tasks_done: int
    tasks: int
    read: int | None = None
    to_read: int | None = None


class BatchLine:
    """Formats the progress line of a batch pipeline, again and again.

    The steps are counted in levels: each is one step that needs an exchange, or that reads what is
    there without one, with all that is fused to it.
    """

    def __init__(self, plan: Plan) -> None:
        self._names = _level_names(plan)
        self._count = max(1, sum(map(len, self._names.values())))
        self._first: dict[SegmentId, int] = {}
        for segment, names in self._names.items():
            self._first[segment] = sum(len(self._names[earlier]) for earlier in self._first)
            assert names
        self._segment: SegmentId | None = None
        self._level = 0  # of the segment
        self._entered: dict[SegmentId, None] = {}
        self._began_s = 0.0
        self._fraction = 0.0

    def begin_segment(self, segment: SegmentId, now_s: float) -> None:
        """Take note that a segment begins, perhaps not for the first time."""
        if self._segment is None:
            self._began_s = now_s
        self._segment, self._level = segment, 0
        self._entered[segment] = None
        self._fraction = self._first[segment] / self._count

    def finish(self) -> None:
        """Take note that all segments are complete."""
        self._entered = dict.fromkeys(self._names)
        self._segment, self._fraction = None, 1.0

    def fractions(self) -> Mapping[SegmentId, float]:
        """Return which part of each segment that has begun is complete, from 0 to 1."""
        fractions = dict.fromkeys([*self._entered], 1.0)
        if self._segment is not None:
            levels = self._fraction * self._count - self._first[self._segment]
            fractions[self._segment] = min(levels / len(self._names[self._segment]), 1.0)
        return fractions

    def parts(
        self, counts: Counts | None, *, elements: int, deferred: int, now_s: float
    ) -> Sequence[str]:
        """Return the parts of the line, without the time.

        Args:
            counts: The progress of Spark jobs. None: none runs, or it is not known.
            elements: The number of elements that sources are known to have emitted.
            deferred: The number of restrictions that wait for later bundles.
            now_s: The time of a monotonic clock.
        """
        if self._segment is None:
            return ["starting"]
        names = self._names[self._segment]
        if counts is not None and counts.tasks:
            # Another Spark job may collect what the first one has materialised.
            self._level = max(self._level, min(counts.stages_done, len(names) - 1))
            levels = self._first[self._segment] + len(names) * counts.tasks_done / counts.tasks
            # What Spark adds while it runs must not make it less.
            self._fraction = max(self._fraction, min(levels / self._count, 1.0))
        number = self._first[self._segment] + self._level + 1
        parts = [bar(self._fraction), f"{names[self._level]} ({number} of {self._count})"]
        if counts is not None and counts.to_read and (counts.read or 0) <= counts.to_read:
            parts.append(f"{counts.read or 0:,} of {counts.to_read:,} read")
        elif elements:
            parts.append(f"{elements:,} read")
        if deferred:
            parts.append(f"{deferred:,} deferred")
        ran_s = now_s - self._began_s
        if _ESTIMATE_FROM <= self._fraction < 1 and ran_s >= _ESTIMATE_AFTER_S:
            left_s = ran_s * (1 - self._fraction) / self._fraction
            parts.append(f"about {time_text(_rounded(left_s))} left")
        return parts


def _rounded(seconds: float) -> int:
    """Round an estimate up, so that it does not look more exact than it is.

    Example:
        >>> _rounded(12.3), _rounded(61.0)
        (15, 90)
    """
    unit = 5 if seconds < 60 else 30 if seconds < 600 else 60
    return -int(-seconds // unit) * unit


def _level_names(plan: Plan) -> Mapping[SegmentId, Sequence[str]]:
    """Return the names of the steps that begin each level; of a segment's, at least one."""
    steps = users_steps(plan.graph)
    readers = {
        destination.stage: destination
        for destination in plan.destinations.values()
        if destination.stage is not None
    }

    def name_of(stage: Stage) -> str:
        destination = readers[stage.id]
        if destination.delivery is Delivery.POINTWISE and stage.transforms:
            return plan.graph.transforms[stage.transforms[0]].step
        return steps.get(destination.name, destination.name)

    def of_level(stages: Sequence[StageId]) -> str:
        first, *others = dict.fromkeys(name_of(plan.stages[id_]) for id_ in stages)
        more = f" + {len(others)} more" if others else ""
        return shorten(first, _STEP_WIDTH - len(more)) + more

    return {
        segment.id: [of_level(level.stages) for level in segment.levels]
        or [plan.graph.transforms[segment.table_write].step if segment.table_write else "Spark"]
        for segment in plan.segments
    }
