"""The program of a level's tasks: all data from the driver, in the closure that Spark sends."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.core.flight_limits import FLIGHT_LIMITS, FlightLimits
from beam_spark_runner.core.ids import DestinationId, PCollectionId, StageId, TransformId
from beam_spark_runner.core.store_address import StateStoreAddress
from beam_spark_runner.engine.limits import Limits
from beam_spark_runner.engine.shared_file import SharedFile
from beam_spark_runner.graph.model import TimestampCombiner
from beam_spark_runner.graph.resources import NO_RESOURCES, Resources
from beam_spark_runner.plan import storing
from beam_spark_runner.plan.model import Delivery, Stored
from beam_spark_runner.portable.stage_description import StageDescription


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
    # If set, ``semantics.grouping`` groups the values of a key, or in epochs those of a side input.
    coded_windowing: bytes = b""
    is_keyed: bool = False  # the reader is notified of each key's end
    is_time_sorted: bool = False
    is_partition: bool = False  # the reader takes what one task writes as one bundle
    # In epochs: the number of key groups, of which each partition has a range. Keys are then in
    # the nested encoding, as they are in the store.
    key_groups: int = 0
    is_windowed_by_sdk: bool = False  # only an SDK harness can run the WindowFn
    is_in_parts: bool = False  # in epochs: several tasks gather the values of a side input

    @property
    def is_ordered(self) -> bool:
        """Whether rows are sorted by ``order``, too.

        The first row of a group may be the one that decides its timestamp, or the reader
        asks for the order of event time.
        """
        return self.is_time_sorted or (
            self.delivery is Delivery.GROUP_BY_KEY
            and not self.coded_windowing
            and self.timestamp_combiner is not TimestampCombiner.END_OF_WINDOW
        )

    @property
    def is_grouped(self) -> bool:
        """Whether rows with equal keys must follow each other."""
        return self.delivery in (Delivery.GROUP_BY_KEY, Delivery.BY_KEY)


@dataclass(frozen=True, slots=True, kw_only=True)
class SideInputRows:
    """Where a worker finds the gathered rows of a side input: see ``side_inputs.files``.

    Attributes:
        id: unique among all side inputs of all jobs: the key in workers' caches.
        code: the code in the rows' routes, see ``core.routing``.
        inline: the content of the only file, in the closure.
        files: files that all workers can read; none if ``inline`` is set or there are no rows.
        name: if the only file is a view in a checkpoint folder: its name, which its digest covers.
    """

    id: str
    code: int
    inline: bytes | None = None
    files: tuple[SharedFile, ...] = ()
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HelperProgram:
    """Has an SDK help a stage of the level, in separate bundles: see ``worker.helper_bundle``.

    Attributes:
        stage: differs from the ids of all stages and all other helpers.
        name: that of the stage that is helped, for messages.
        description: of the helper, which has one output.
        views: see ``StageInEpochs``.
    """

    stage: StageId
    name: str
    description: StageDescription
    views: Mapping[tuple[str, str], Edge] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowMapping:
    """How windows of a step's main input are mapped to windows of its side input.

    Attributes:
        step: the step that looks the side input up, for messages.
        coded_windowing: the windowing of the side input.
        coded_main: the windowing of the main input, if the runner can enumerate its windows.
        pickled: a Python function that maps them; empty: the default mapping of SDKs.
        helper: by which an SDK harness maps them; None: this process maps them.
    """

    step: str
    coded_windowing: bytes
    coded_main: bytes = b""
    pickled: bytes = b""
    helper: HelperProgram | None = None

    @property
    def may_look_back(self) -> bool:
        """Whether a window may be looked up by one that ends later, as it never is by default."""
        return bool(self.pickled) or self.helper is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageInBatch:
    """What only a stage of a bounded pipeline has.

    Attributes:
        side_inputs: the rows of its side inputs, by transform id and local name.
        takes_partition: it runs in each task that has a partition of its input.
    """

    side_inputs: Mapping[tuple[str, str], SideInputRows] = field(default_factory=dict)
    takes_partition: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StageInEpochs:
    """What only a stage of a streaming pipeline has.

    Attributes:
        stores: what it stores in its shard.
        views: its side inputs, by transform id and local name: a stage gathers each of them.
        mappings: how windows are mapped to those of each of ``views``.
        merger: merges the accumulators that it reads.
        truncator: truncates the restrictions that it reads, when the pipeline is drained.
        lateness_us: the allowed lateness of its input; if it gathers a side input, the most of the
            inputs of steps that look it up.
        late_counter_step: the step that counts elements dropped as late.
        keyed_transform: the id of the transform with state and timers; empty: there is none.
        is_for_table: whether it stores the rows for a table, which the driver writes.
    """

    stores: frozenset[Stored] = frozenset()
    views: Mapping[tuple[str, str], Edge] = field(default_factory=dict)
    mappings: Mapping[tuple[str, str], WindowMapping] = field(default_factory=dict)
    merger: HelperProgram | None = None
    truncator: HelperProgram | None = None
    lateness_us: int = 0
    late_counter_step: TransformId | None = None
    keyed_transform: str = ""
    is_for_table: bool = False

    @property
    def may_be_in_state_store(self) -> bool:
        """Whether its keys are in the state store, if there is one."""
        return storing.may_be_in_state_store(self.stores)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageProgram:
    """One stage of the level.

    Attributes:
        stage: its id.
        name: for messages where no single step is known.
        description: what an SDK runs.
        input: what it reads.
        collection: the name of its input, for messages.
        outputs: for each collection that it emits, the edges by which rows leave the task.
        local: likewise, the stages of the task that get its elements.
        counted_elsewhere: its input, if another stage counts the same elements. None: it does.
        window_merger: merges the windows of the groups that it reads, by a WindowFn of an SDK
            harness.
        batch: set if the pipeline is bounded.
        epoch: set if it streams.
    """

    stage: StageId
    name: str
    description: StageDescription
    input: Edge
    collection: str
    outputs: Mapping[PCollectionId, tuple[Edge, ...]]
    local: Mapping[PCollectionId, tuple[StageId, ...]]
    counted_elsewhere: PCollectionId | None = None
    window_merger: HelperProgram | None = None
    batch: StageInBatch | None = None
    epoch: StageInEpochs | None = None

    @property
    def in_batch(self) -> StageInBatch:
        """What it has in a bounded pipeline, of which it is a part."""
        if self.batch is None:
            raise InvariantError(f"{self.name} is not a stage of a bounded pipeline")
        return self.batch

    @property
    def in_epochs(self) -> StageInEpochs:
        """What it has in epochs, in which it runs."""
        if self.epoch is None:
            raise InvariantError(f"{self.name} does not run in epochs")
        return self.epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLocations:
    """Where the tasks of a streaming job have their shards.

    Attributes:
        lineage: the part of the names of deltas that all restarts of the job share.
        deltas: the folder that driver and workers share: a path, or a URL.
        local: the folder of local copies; None: it is in the first of Spark's local folders.
        key_groups: the number of key groups, see ``core.routing``.
        tasks_sync: tasks sync their files; if not, the driver does, before a manifest names them.
        store: settings of clients of object stores and HDFS, see ``UrlFolder``.
        state_store: where keys are, in place of the shards. None: they are in shards.
        pack_cache_bytes: of what a worker has read from there and keeps for its next tasks.
    """

    lineage: str
    deltas: str
    local: str | None
    key_groups: int
    tasks_sync: bool = True
    store: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # secrets may be among them
    state_store: StateStoreAddress | None = None
    pack_cache_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPlace:
    """Where the tasks of a Spark job store their output, for later Spark jobs and later starts.

    Attributes:
        folder: a folder of the Spark job that driver and workers share: a path, or a URL.
        run: the number of the Spark job.
        tasks: how many tasks it has.
        has_rows: whether rows are stored, and not only finish records.
        finished: the partitions that an earlier attempt has finished: their tasks do nothing.
        store: see ``ShardLocations``.
    """

    folder: str
    run: int
    tasks: int
    has_rows: bool
    finished: frozenset[int] = frozenset()
    store: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # secrets may be among them


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPart:
    """What only a level of a bounded pipeline has.

    Attributes:
        round_budget_us: the time for splittable DoFns; None: they process all restrictions.
        longest_round_us: see ``splittable.Budget.longest_us``.
        may_pass_on: its tasks pass their input on to a later Spark job, if a splittable DoFn
            upstream leaves residuals.
        leaves_much: several restrictions, or a large one, are left to other tasks.
        is_round: its input is residuals; tasks of other Spark jobs have processed the rest.
        driver_rows: rows that the driver has, see ``schema.coded_batches``: in place of the tasks'
            input.
        returned_dests: in a Spark job's last level: destinations whose rows the reports bring to
            the driver, unless those of a task exceed ``returned_bytes``.
        output_place: where its tasks store their output. None: Spark stores it.
    """

    round_budget_us: int | None = None
    longest_round_us: int | None = None
    may_pass_on: bool = False
    leaves_much: bool = False
    is_round: bool = False
    driver_rows: bytes = b""
    returned_dests: frozenset[int] = frozenset()
    returned_bytes: int = 0
    output_place: OutputPlace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochPart:
    """What only a level of a streaming pipeline has, which runs once in each epoch.

    Attributes:
        shards: where its tasks have their shards.
        user_timer_batch: set where the firing of user timers may be interrupted: how many an SDK
            harness gets at once.
        in_flight: how much a declarative step processes at the same time in a task, if its state is
            in a state store.
        leaves_requests: whether such a step may leave requests for the next epoch.
        rows_from: the local property of the Spark job that has the rows of the level, in place of
            its tasks' input.
        stores_rows: its rows go into a file, for a later Spark job of the epoch.
    """

    shards: ShardLocations
    user_timer_batch: int | None = None
    in_flight: FlightLimits = FLIGHT_LIMITS
    leaves_requests: bool = False
    rows_from: str | None = None
    stores_rows: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelProgram:
    """The program of all tasks of one level.

    Attributes:
        job_id: the id of the job.
        title: names the level.
        run: the number of the Spark job among the pipeline's.
        level: counted over all segments.
        partitions: the number of partitions of every exchange, in later segments, too.
        has_next: False in a Spark job's last level, unless that stores its rows.
        has_exchange: in front of it.
        stages: the stages that run in each task.
        limits: those of all tasks of the job.
        batch: set if the pipeline is bounded.
        epoch: set if it streams.
        passed_on: destinations whose rows a task passes on: for later levels of the segment, or to
            be stored.
        resources: what its steps ask for by resource hints.
    """

    job_id: str
    title: str
    run: int
    level: int
    partitions: int
    has_next: bool
    has_exchange: bool
    stages: tuple[StageProgram, ...]
    limits: Limits
    batch: BatchPart | None = None
    epoch: EpochPart | None = None
    passed_on: frozenset[int] = frozenset()
    resources: Resources = NO_RESOURCES

    @property
    def shards(self) -> ShardLocations:
        """Where its tasks have their shards: it runs in epochs."""
        if self.epoch is None:
            raise InvariantError(f"{self.title} does not run in epochs")
        return self.epoch.shards

    @property
    def finished(self) -> frozenset[int]:
        """The partitions whose tasks do nothing, since an earlier attempt has finished them."""
        place = None if self.batch is None else self.batch.output_place
        return frozenset() if place is None else place.finished

    @property
    def reads_marks_first(self) -> bool:
        """Whether its tasks read the marks of their input before all other rows."""
        return self.batch is None or self.batch.may_pass_on
