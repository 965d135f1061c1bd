"""The status of a streaming pipeline and its steps after an epoch, for people."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from beam_spark_runner.core.time import MAX_US


class EpochPart(Enum):
    """A part of the time that an epoch takes."""

    PLANNING = "planning"  # until the Spark job is submitted
    TASKS = "tasks"  # the sum of the slowest tasks of all levels
    SPARK = "Spark"  # the rest of Spark jobs: scheduling, exchanges, attempts that do not count
    COMMIT = "commit"


class HoldReason(Enum):
    """The reason why the output watermark of a step is held."""

    RESTRICTION = "restriction"
    WINDOW = "window"  # an open window
    TIMER = "timer"
    DUE_TIMER = "due timer"  # a timer or pane that an interrupted epoch has left to the next one
    SIDE_INPUT = "side input"  # elements wait for a side input
    COMMIT = "commit"  # stable input waits for the commit
    ORDER = "order"  # elements wait to be processed in the order of event time
    READ = "read"  # records of a declarative step wait for reads, or for their key


@dataclass(frozen=True, slots=True)
class Hold:
    """The reason of a watermark hold, and the held event time in microseconds."""

    holder: HoldReason
    at_us: int


@dataclass(frozen=True, slots=True)
class Blocked:
    """Elements that wait for side inputs.

    Attributes:
        since_us: The timestamp of the earliest one.
        window: Its window, encoded.
        producers: The names of the steps whose outputs are the side inputs that are not ready.
    """

    since_us: int
    window: bytes
    producers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStatus:
    """The status of a step of the pipeline. Watermarks are in microseconds.

    Attributes:
        input_us: The input watermark.
        output_us: The output watermark.
        hold: The hold of the output watermark; None: it is not held.
        restrictions: The number of stored restrictions; None: the step is no splittable DoFn.
        backlog: The size of these, from the restriction provider; None: not known.
        blocked: The elements that wait for side inputs; None: there are none.
        left: The number of elements and timers that are left for the next epoch, since they wait
            for reads; None: the step is not declarative.
    """

    input_us: int
    output_us: int
    hold: Hold | None = None
    restrictions: int | None = None
    backlog: float | None = None
    blocked: Blocked | None = None
    left: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelState:
    """What the shards of a level have, with the groups and restrictions of its steps.

    Attributes:
        records: The number of records: several of a key, and some of no key.
        next_event_us, next_clock_us: When the next timer is due, in event time and in processing
            time. None: there is no such timer.
    """

    records: int = 0
    next_event_us: int | None = None
    next_clock_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochTimes:
    """How long an epoch took, by the driver's clock. Microseconds.

    Attributes:
        total_us: From the beginning of the epoch to the end of its commit.
        planning_us: The time in which Spark jobs were prepared.
        jobs_us: The time in which Spark jobs ran.
        budget_us: The time for which the tasks of the epoch process restrictions.
    """

    total_us: int
    planning_us: int
    jobs_us: int
    budget_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochStatus:
    """The status of a streaming pipeline after an epoch.

    Attributes:
        epoch: The number of the epoch.
        start: Which start of the pipeline on its checkpoint has committed it; the first one is 1.
        clock_us: The processing time of the epoch, microseconds since the Unix epoch.
        partitions: The number of partitions of its exchanges.
        tasks_us: The time of all its tasks together, in microseconds.
        was_cut_off: Whether sources had more elements than there was time for.
        took_us: How long the epoch took.
        parts_us: The parts of ``took_us``, which is their sum.
        budget_us: See ``EpochTimes``.
        slowest: The names of the steps of the level with the slowest task, and its time in
            microseconds.
        steps: The status of each step, by name.
        stored_bytes: The sizes of the local copies of shards, by the names of the steps that
            share the shards of a level.
        stored_state: Their records and timers, likewise.
        group_bytes: The largest groups of keys that were read as a whole from a state store,
            likewise.
    """

    epoch: int
    start: int = 1
    clock_us: int = 0
    partitions: int = 0
    tasks_us: int = 0
    was_cut_off: bool = False
    took_us: int = 0
    parts_us: Mapping[EpochPart, int] = field(default_factory=dict)
    budget_us: int = 0
    slowest: tuple[str, int] = ("", 0)
    steps: Mapping[str, StepStatus] = field(default_factory=dict)
    stored_bytes: Mapping[str, int] = field(default_factory=dict)
    stored_state: Mapping[str, LevelState] = field(default_factory=dict)
    group_bytes: Mapping[str, int] = field(default_factory=dict)

    def last_step(self) -> str | None:
        """Return the step with the least output watermark; None: all are at the end of time.

        Of several such steps, one with a hold is preferred.
        """
        by_time = [(step.output_us, step.hold is None, name) for name, step in self.steps.items()]
        output_us, _, name = min(by_time, default=(MAX_US, False, ""))
        return name if output_us < MAX_US else None
