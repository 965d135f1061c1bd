"""The plan: pure data that ``plan.build`` creates and ``spark/`` executes.

A **stage** is a fused run of transforms. A **destination** is an edge into a
stage (or into a side input): rows carry its id. A **level** is one exchange and
the stages downstream of it; they share one Spark stage. A **segment** is one Spark job.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from beam_spark_runner.core.ids import (
    DestinationId,
    EnvironmentId,
    PCollectionId,
    SegmentId,
    StageId,
    TransformId,
)
from beam_spark_runner.graph.model import Graph, TimestampCombiner


class Delivery(Enum):
    """How rows get from the producers of a collection to a destination."""

    POINTWISE = "pointwise"  # rows stay in the task, or are read back without an exchange
    REDISTRIBUTE = "redistribute"  # spread evenly, in no order
    REDISTRIBUTE_BY_SIZE = "redistribute by size"  # sized restrictions: spread by their size
    GROUP_BY_KEY = "group by key"  # partitioned and sorted by key and window
    BY_KEY = "by key"  # partitioned and sorted by key, for user state; element by element
    SIDE_INPUT = "side input"  # gathered, for stages that look values up
    TABLE = "table"  # Arrow batches, for one Spark write


class Stored(Enum):
    """A kind of data that a stage of a streaming plan has in its shard from epoch to epoch."""

    KEYS = "keys"  # of a step with state, timers or time-sorted input
    GROUPS = "groups"  # windows of keys that have not fired, in front of its first step
    VIEW = "view"  # windows of the side input that it gathers
    RESTRICTIONS = "restrictions"  # of its splittable DoFn: new ones, and residuals
    UNREADY = "unready"  # elements whose side inputs are not ready
    UNCOMMITTED = "uncommitted"  # its input, until the epoch that stores it is committed
    UNSORTED = "unsorted"  # elements of KEYS that the watermark has not passed


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """An edge of the plan.

    ``arriving`` is what producers write: for GROUP_BY_KEY the collection of
    KVs before the grouping, for a Reshuffle the collection before it. The
    stage's own ``input`` is the collection after it. They share windowing.
    """

    id: DestinationId
    delivery: Delivery
    arriving: PCollectionId
    # The reader; None for a TABLE, and for a SIDE_INPUT that is gathered between segments.
    stage: StageId | None
    name: str  # of the step that requires the exchange: "Count/Group", "Read/Reshuffle", …
    timestamp_combiner: TimestampCombiner = TimestampCombiner.END_OF_WINDOW  # GROUP_BY_KEY only
    access_pattern: str = ""  # SIDE_INPUT only: urns.SIDE_INPUT_*
    is_time_sorted: bool = False  # BY_KEY only: each key's elements in the order of event time
    is_partition: bool = False  # POINTWISE only: the reader takes a task's elements as one bundle


@dataclass(frozen=True, slots=True, kw_only=True)
class SideInput:
    """One side input of one transform of a stage; its rows are gathered at ``destination``."""

    transform: TransformId
    local_name: str
    destination: DestinationId


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A fused run of transforms in one environment, with one main input.

    ``transforms`` is in topological order and may be empty: such a stage only passes its input on
    to other destinations, gathers a side input, or stores the rows of a table. A Flatten that was
    unzipped is in several stages, in each as a transform with its own id, whose ``inputs``
    are only those of that stage. ``input`` is among ``outputs`` only if ``transforms`` is empty.
    """

    id: StageId
    name: str  # for people: the outermost step names of ``transforms``
    transforms: tuple[TransformId, ...]
    input: PCollectionId
    outputs: tuple[PCollectionId, ...]  # the collections that leave the stage
    environment: EnvironmentId | None
    side_inputs: tuple[SideInput, ...] = ()
    is_splittable: bool = False  # its first transform is a splittable DoFn, with residuals
    is_keyed: bool = False  # its first transform has state or timers; no other one can
    is_stable: bool = False  # its first transform requires stable input; no other one can
    takes_partition: bool = False  # it runs in every task of its level, even without elements
    # If the plan streams: the step that writes the table whose rows this stage stores. It follows
    # from the destination; stored batch jobs have digests of plans without it.
    table_write: TransformId | None = field(default=None, compare=False)
    # If the plan streams; derived from the rest of the plan by ``plan.storing``.
    stores: frozenset[Stored] = field(default=frozenset(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Stages that share a Spark stage, in topological order (pointwise edges run forward).

    ``has_exchange`` is False only for a segment's first level, where impulses
    and materialised rows are read without an exchange.
    """

    has_exchange: bool
    stages: tuple[StageId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One Spark job: levels, or the write of a table.

    ``first_level``: the number of its first level, counted over all levels of the plan.
    ``impulses``: destinations that get one empty element each from the driver.
    ``test_streams``: destinations that get the elements of a TestStream from the driver.
    ``tables``: destinations that get the rows of a Spark table, and the step that reads it.
    ``results``: destinations that get the result of a write, and the step that writes.
    ``table_write``: the step that writes a table, from the only destination in ``reads``; such a
    segment has no levels.
    ``reads``: main inputs whose rows earlier segments materialised (all of
    those segments are listed; the destination may get rows in this one too).
    ``writes``: destinations in later segments, and side inputs: their rows
    are materialised at the end of this one; the text is the reason, for people.
    """

    id: SegmentId
    levels: tuple[Level, ...]
    impulses: tuple[DestinationId, ...] = ()
    test_streams: tuple[DestinationId, ...] = ()
    reads: Mapping[DestinationId, tuple[SegmentId, ...]]
    writes: Mapping[DestinationId, str]
    side_inputs: tuple[DestinationId, ...] = ()  # read by its stages; not among ``reads``
    tables: Mapping[DestinationId, TransformId] = field(default_factory=dict)
    results: Mapping[DestinationId, TransformId] = field(default_factory=dict)
    table_write: TransformId | None = None
    first_level: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The whole pipeline. Segments run in order, each after all those it reads from.

    ``consumers``: the destinations to which every stage with the collection among its
    ``outputs`` writes. Destinations of impulses and tables are missing: the driver
    feeds them, even if a stage passes the impulse on.
    Tables are written after all stages that do not depend on the result of a write.
    ``streams``: the plan runs in epochs. Then segments end only because of ``max_exchanges``, and
    each reads what the previous one writes: rows for a later one are passed on by all in between.
    All that the driver feeds is in the first segment; the others begin with an exchange.
    """

    graph: Graph
    stages: Mapping[StageId, Stage]
    destinations: Mapping[DestinationId, Destination]
    consumers: Mapping[PCollectionId, tuple[DestinationId, ...]]  # by ``arriving``
    segments: tuple[Segment, ...]
    is_streaming: bool = False
