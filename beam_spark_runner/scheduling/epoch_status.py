"""What people see of a streaming pipeline: its steps as an epoch has left them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from beam_spark_runner.core.time import MAX_US


class Part(Enum):
    """Of the time of an epoch."""

    PLANNING = "planning"  # until Spark gets the job
    TASKS = "tasks"  # the slowest task of each level, added up
    SPARK = "Spark"  # the rest of its jobs: scheduling, exchanges, attempts that did not count
    COMMIT = "commit"


class Holder(Enum):
    """What holds the output watermark of a step back."""

    RESTRICTION = "restriction"
    WINDOW = "window"  # that is open
    TIMER = "timer"
    DUE_TIMER = "due timer"  # or a pane, that an interrupted epoch has left to the next one
    SIDE_INPUT = "side input"  # elements wait for it
    COMMIT = "commit"  # stable input waits for it
    ORDER = "order"  # elements wait for their turn, in the order of event time


@dataclass(frozen=True, slots=True)
class Hold:
    """What holds a watermark, and where. Event time in microseconds."""

    holder: Holder
    at_us: int


@dataclass(frozen=True, slots=True)
class Blocked:
    """Elements that wait for side inputs.

    Attributes:
        since_us: timestamp of the earliest one.
        window: of that one, encoded.
        makers: names of the steps that make the side inputs which are not ready for it.
    """

    since_us: int
    window: bytes
    makers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStatus:
    """A step of the pipeline. Watermarks are in microseconds.

    Attributes:
        input_us: the watermark of its input.
        output_us: that of its output.
        hold: what holds the latter back; None: nothing does.
        restrictions: of a splittable DoFn: how many are stored.
        backlog: their size, as the restriction provider says; None: not known.
        blocked: elements wait for side inputs.
    """

    input_us: int
    output_us: int
    hold: Hold | None = None
    restrictions: int | None = None
    backlog: float | None = None
    blocked: Blocked | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """How long an epoch took, as its driver has seen it. Microseconds.

    Attributes:
        total_us: from its beginning to the end of its commit.
        planning_us: until Spark had the jobs.
        jobs_us: of the Spark jobs.
        budget_us: for which tasks were to process sources and timers.
    """

    total_us: int
    planning_us: int
    jobs_us: int
    budget_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochStatus:
    """A streaming pipeline after an epoch.

    Attributes:
        epoch: its number.
        clock_us: its processing time, microseconds since the Unix epoch.
        took_us: how long it took.
        parts_us: the parts of that; their sum.
        budget_us: see ``Took``.
        slowest: names of the steps of the level whose slowest task took longest, and how long.
        steps: by name.
        stored_bytes: size of what tasks have stored, by the steps that share a level's shards: all
            their local copies, as databases on disks.
    """

    epoch: int
    clock_us: int = 0
    took_us: int = 0
    parts_us: Mapping[Part, int] = field(default_factory=dict)
    budget_us: int = 0
    slowest: tuple[str, int] = ("", 0)
    steps: Mapping[str, StepStatus] = field(default_factory=dict)
    stored_bytes: Mapping[str, int] = field(default_factory=dict)

    def last_step(self) -> str | None:
        """Return the step whose output watermark is the least; None: all are at the end of time.

        Of several, one that something holds.
        """
        by_time = [(step.output_us, step.hold is None, name) for name, step in self.steps.items()]
        output_us, _, name = min(by_time, default=(MAX_US, False, ""))
        return name if output_us < MAX_US else None
