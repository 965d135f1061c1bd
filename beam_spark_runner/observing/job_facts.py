"""All that is known of one job at one moment, for people who look at it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from beam_spark_runner.observing.epoch_history import PastEpoch
from beam_spark_runner.observing.epoch_status import EpochStatus, StepStatus
from beam_spark_runner.observing.level_works import LevelWork
from beam_spark_runner.observing.made_savepoints import MadeSavepoint
from beam_spark_runner.observing.message_lines import MessageLine
from beam_spark_runner.observing.segment_times import SegmentTime
from beam_spark_runner.observing.step_graph import StepGraph
from beam_spark_runner.observing.troubles import LostExecutor, Trouble

QUEUED, STARTING, RUNNING, DRAINING = "STOPPED", "STARTING", "RUNNING", "DRAINING"
DONE, DRAINED, FAILED, CANCELLED = "DONE", "DRAINED", "FAILED", "CANCELLED"
"""The states of a job, as Beam names them; it calls a job in a queue stopped."""
ENDED = frozenset({DONE, DRAINED, FAILED, CANCELLED})


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """What a step has done so far.

    Attributes:
        taken: The number of elements of its main inputs.
        emitted: The number of elements of its outputs.
        emitted_bytes: The size of these, estimated from samples. None: there are no samples.
        per_second: The elements that it emits per second. None: not known yet.
        busy_ms: The time that its code took, in milliseconds, summed over all tasks.
        busy_share: The part of the busy time of all steps since the previous look, 0 to 1.
        metrics: The users' metrics, as pairs of a name and a value.
    """

    taken: int = 0
    emitted: int = 0
    emitted_bytes: int | None = None
    per_second: float | None = None
    busy_ms: int = 0
    busy_share: float = 0.0
    metrics: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """All that is known of a job. Unix times are in seconds.

    Attributes:
        job_id: The id of the job.
        name: The name that its user has given it; "": none.
        state: One of Beam's states.
        states: The states with the times at which they were entered, the first one first.
        now_s: The time of these facts.
        is_streaming: Whether it runs in epochs. None: it is not compiled yet.
        interval_us: The interval between epochs, in microseconds.
        graph: Its steps; empty: not known.
        figures: The figures of steps, by full name.
        collections: The number of elements of each collection, by id.
        rates: The elements per second of collections, by id.
        segments: The number of segments of the plan.
        segment_times: The segments that have begun.
        advised_partitions: How many its load asks for. None: not known, or no stream.
        status: The status after the last epoch. None: this run has committed none.
        committed_s: When the last epoch was committed. None: no epoch.
        epochs: The latest epochs.
        savepoints: The latest savepoints that this run has made.
        read_per_second: The elements per second that sources have emitted, at equal distances, the
            newest last.
        read: The number of elements that sources have emitted.
        busy_cores: How many cores the code of steps has kept busy since the previous look.
        has_tasks: Whether a task of the running Spark job has reported. None: not known.
        tasks_seen_s: When tasks have last reported, Unix time. None: never.
        samples: The latest elements of collections, as text, by id; empty: nobody asks for them.
        level_works: The slowest tasks of each level; in a stream, of the last epoch.
        troubles: What goes wrong now, or went wrong lately.
        lost_executors: The executors that Spark has lost.
        messages: Its latest messages, the newest last.
        error: Why it has failed. "": it has not.
        plan_text: The plan as text. "": not known.
        options: The options that are not defaults, as pairs of a name and a value.
        spark_url: The URL of the Spark UI. None: none.
    """

    job_id: str
    name: str = ""
    state: str = RUNNING
    states: tuple[tuple[str, float], ...] = ()
    now_s: float = 0.0
    is_streaming: bool | None = None
    interval_us: int = 0
    graph: StepGraph = field(default_factory=StepGraph)
    figures: Mapping[str, StepFigures] = field(default_factory=dict)
    collections: Mapping[str, int] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    segments: int = 0
    segment_times: tuple[SegmentTime, ...] = ()
    advised_partitions: int | None = None
    status: EpochStatus | None = None
    committed_s: float | None = None
    epochs: tuple[PastEpoch, ...] = ()
    savepoints: tuple[MadeSavepoint, ...] = ()
    read_per_second: tuple[float, ...] = ()
    read: int = 0
    busy_cores: float = 0.0
    has_tasks: bool | None = None
    tasks_seen_s: float | None = None
    samples: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    level_works: tuple[LevelWork, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    lost_executors: tuple[LostExecutor, ...] = ()
    messages: tuple[MessageLine, ...] = ()
    error: str = ""
    plan_text: str = ""
    options: tuple[tuple[str, str], ...] = ()
    spark_url: str | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the state is the last one."""
        return self.state in ENDED

    @property
    def began_s(self) -> float | None:
        """When the job was submitted. None: not known."""
        return self.states[0][1] if self.states else None

    @property
    def entered_s(self) -> float | None:
        """When the job has entered its state. None: not known."""
        return self.states[-1][1] if self.states else None

    @property
    def age_s(self) -> float | None:
        """The time from the submission to the end, or until now. None: not known."""
        if self.began_s is None or self.entered_s is None:
            return None
        return max(0.0, (self.entered_s if self.has_ended else self.now_s) - self.began_s)

    @property
    def steps(self) -> Mapping[str, StepStatus]:
        """The status of each step after the last epoch, by full name."""
        return {} if self.status is None else self.status.steps

    @property
    def segment(self) -> SegmentTime | None:
        """The segment of a batch pipeline that runs. None: none does."""
        running = [
            times for times in self.segment_times if times.ended_s is None and not self.has_ended
        ]
        return running[-1] if running else None
