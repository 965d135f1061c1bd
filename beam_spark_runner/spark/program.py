"""The program of a level's tasks: everything that they need from the driver, in the closure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from beam_spark_runner.backchannel.transport import Route
from beam_spark_runner.core.ids import DestinationId, PCollectionId, StageId, TransformId
from beam_spark_runner.graph.model import TimestampCombiner
from beam_spark_runner.harness.remote.settings import HarnessSettings
from beam_spark_runner.plan.model import Delivery
from beam_spark_runner.portable.stage_description import StageDescription
from beam_spark_runner.spark.shared_file import SharedFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A destination, as its producers and its reader see it."""

    dest: DestinationId
    code: int  # among the destinations of the level that reads it, see core.routing
    delivery: Delivery
    name: str  # the step that asked for it, for messages
    is_global: bool  # its windowing is the global window
    timestamp_combiner: TimestampCombiner = TimestampCombiner.END_OF_WINDOW
    access_pattern: str = ""
    # Set: values of a key are grouped by ``semantics.grouping``; a side input's are, in epochs.
    coded_windowing: bytes = b""
    is_keyed: bool = False  # the reader is notified of each key's end
    is_time_sorted: bool = False
    is_partition: bool = False  # the reader takes what one task writes as one bundle
    # In epochs: into how many groups keys fall, of which each partition has a range. Keys are
    # nested then, as they are in the store.
    key_groups: int = 0
    is_windowed_by_sdk: bool = False  # only an SDK harness can run the WindowFn
    in_parts: bool = False  # values of a side input are gathered in several tasks, in epochs

    @property
    def is_ordered(self) -> bool:
        """Whether ``order`` joins the sort.

        The first row of a group may be the one that decides its timestamp, or the reader
        asks for the order of event time.
        """
        return self.is_time_sorted or (
            self.delivery is Delivery.GROUP_BY_KEY
            and not self.coded_windowing
            and self.timestamp_combiner is not TimestampCombiner.END_OF_WINDOW
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SideInputRows:
    """Where a worker finds the gathered rows of a side input: see ``side_inputs.files``.

    Attributes:
        id: unique among all side inputs of all jobs: workers cache by it.
        code: that of the edge, for routes.
        inline: the only file's bytes, in the closure.
        files: that all workers can read; none if there are no rows.
    """

    id: str
    code: int
    inline: bytes | None = None
    files: tuple[SharedFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowMapping:
    """How the windows of a side input are found, for those of the step that looks it up.

    Attributes:
        step: the one that looks it up, for messages.
        coded_windowing: of the side input.
        coded_main: of the step's input, where the runner knows its windows before they come.
        pickled: a function of Python's that finds them; empty: the default of SDKs does.
        asks: a stage that an SDK harness runs, which finds them; None: this process does.
    """

    step: str
    coded_windowing: bytes
    coded_main: bytes = b""
    pickled: bytes = b""
    asks: "StageProgram | None" = None

    @property
    def may_look_back(self) -> bool:
        """Whether a window may be looked up by one that ends later, as it never is by default."""
        return bool(self.pickled) or self.asks is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageProgram:
    """One stage of the level. ``local`` edges stay in the task."""

    stage: StageId
    name: str  # for messages about what no single step can be blamed for
    description: StageDescription
    input: Edge
    outputs: Mapping[PCollectionId, tuple[Edge, ...]]
    local: Mapping[PCollectionId, tuple[StageId, ...]]
    side_inputs: Mapping[tuple[str, str], SideInputRows]  # (transform id, local name)
    views: Mapping[tuple[str, str], Edge]  # the same in epochs: what a stage of the level gathers
    collection: str  # the name of what it reads, for messages
    mappings: Mapping[tuple[str, str], WindowMapping] = field(default_factory=dict)  # of ``views``
    # Merges the accumulators that the stage reads, in epochs; with an id that no other stage has.
    merger: "StageProgram | None" = None
    # Merges the windows of the groups that the stage reads, by a WindowFn of an SDK harness.
    window_merger: "StageProgram | None" = None
    # Truncates the restrictions that the stage reads, when a streaming pipeline is drained.
    truncator: "StageProgram | None" = None
    is_stable: bool = False  # it asks for stable input
    takes_partition: bool = False  # it runs in each task that has a partition of its input
    # Of the windows that it reads; of what gathers a side input, the most of those that look it up.
    lateness_us: int = 0
    drops_as: TransformId | None = None  # the step to which elements are charged that are too late


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPlaces:
    """Where the tasks of a streaming job have their shards.

    Attributes:
        lineage: in names of files.
        deltas: folder that driver and workers share: a path, or a URL.
        local: folder of local copies; None: the first of Spark's own local folders.
        key_groups: into how many groups keys fall, see ``core.routing``.
        tasks_sync: what tasks have written there is durable when they end; if not, the driver
            sees to that before a manifest names it.
        store: settings of clients of object stores and HDFS, see ``UrlFolder``.
    """

    lineage: str
    deltas: str
    local: str | None
    key_groups: int
    tasks_sync: bool = True
    store: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # secrets may be among them


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelProgram:
    """All that a task of one level does.

    ``partitions`` is that of every exchange, in later segments too;
    ``has_next`` is False in a Spark job's last level, unless that stores its rows.
    """

    job_id: str
    title: str
    run: int  # of the Spark job, counted over the pipeline's
    level: int  # counted over all segments
    partitions: int
    has_next: bool
    has_exchange: bool  # in front of it
    may_pass_on: bool  # where a splittable DoFn before it leaves residuals
    round_budget_us: int | None  # of splittable DoFns; None: they process all that they get
    stages: tuple[StageProgram, ...]
    max_attempts: int  # of a task, as Spark counts them
    row_limit_bytes: int  # longer values travel in pieces
    max_element_bytes: int
    cache_bytes: int  # of decoded side inputs that a worker keeps
    spill_bytes: int  # of one group in memory
    options_json: str = "{}"  # pipeline options, as SDK harnesses get them
    working_folder: str | None = None  # of the program, where tasks run on its machine
    route: Route | None = None  # to the driver, beside the rows
    harnesses: HarnessSettings | None = None  # set where code runs in SDK harnesses
    shards: ShardPlaces | None = None  # set where the pipeline streams
    # Set where the firing of user timers may be interrupted: how many an SDK harness gets at once.
    user_timer_batch: int | None = None
    stuck_s: float = 0.0  # for how long user code may stand still; 0: for ever
    # Local property of the Spark job that has the rows of the level, in place of its input.
    rows_from: str | None = None
    is_round: bool = (
        False  # its input is what splittable DoFns have left; other tasks have the rest
    )
    stores_rows: bool = False  # its rows go into a file, for a later Spark job of the epoch
    # Destinations whose rows a task passes on: for later levels of the segment, or to be stored.
    goes_on: frozenset[int] = frozenset()
