"""The pipeline as the passes see it: primitive transforms over PCollections.

Built from the proto by ``portable.pipeline``; turned into stages by
``graph.passes`` and ``plan.build``. Pure and immutable: a pass returns a new
Graph and shares what it did not change.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from beam_spark_runner.core import urns
from beam_spark_runner.core.ids import (
    CoderId,
    EnvironmentId,
    PCollectionId,
    TransformId,
    WindowingId,
)
from beam_spark_runner.graph.resources import NO_RESOURCES, Resources


class TimestampCombiner(Enum):
    """How the timestamp of a grouped value follows from its elements' (proto ``OutputTime``)."""

    END_OF_WINDOW = "end_of_window"
    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Coder:
    """Proto ``Coder``."""

    urn: str
    payload: bytes = b""
    components: tuple[CoderId, ...] = ()
    fields: str = ""  # of a row coder: names, types and order of the fields, for people


@dataclass(frozen=True, slots=True, kw_only=True)
class Windowing:
    """Facts of a proto ``WindowingStrategy``; the whole of it stays in ``coded``."""

    coded: bytes  # the serialised WindowingStrategy
    window_fn_urn: str
    window_coder: CoderId
    window_fn_parameters: str = ""  # as text; windows with different ones may not be mixed
    merges: bool = False
    trigger_is_default: bool = True  # in batch, each window has exactly one pane, on time
    trigger: str = "default"  # its name, for messages
    accumulates: bool = False  # a pane has the values of the earlier panes, too
    timestamp_combiner: TimestampCombiner = TimestampCombiner.END_OF_WINDOW
    panes_add_up: bool = True  # see ``portable.windowing.panes_add_up``
    environment: EnvironmentId | None = None  # of a WindowFn that Beam's model does not define

    @property
    def is_of_the_model(self) -> bool:
        """Whether Beam's model defines the WindowFn; else it is code of a user."""
        return self.window_fn_urn in urns.WINDOW_FNS

    @property
    def gathers_in_parts(self) -> bool:
        """Whether the values of one window of a side input may be gathered in several tasks."""
        return self.groups_by_window and self.panes_add_up

    @property
    def groups_by_window(self) -> bool:
        """Whether each key and window is a separate group, with one pane.

        Else all values of a key have to be processed together, to merge their
        windows or to fire their triggers.
        """
        return not self.merges and self.trigger_is_default


@dataclass(frozen=True, slots=True, kw_only=True)
class PCollection:
    """Proto ``PCollection``. Its producer is found by ``graph.facts.producers``."""

    name: str  # the user's name for it, for messages and metrics
    coder: CoderId  # of the bare element, not of the windowed value
    windowing: WindowingId
    is_bounded: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Proto ``Environment``; the whole of it stays in ``coded``."""

    urn: str
    coded: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """One primitive transform. Composites are expanded before the first pass.

    Exceptions are Reshuffle and a CombinePerKey that may be lifted: composites in
    Beam, but one Transform here.
    """

    name: str  # proto ``unique_name``: its full name, which metrics and checkpoints have
    urn: str
    part_of: str = ""  # the name of the step that a user has applied; empty: it is one itself
    payload: bytes = b""  # passed to the SDK unchanged
    inputs: Mapping[str, PCollectionId] = field(default_factory=dict)  # local name -> collection
    outputs: Mapping[str, PCollectionId] = field(default_factory=dict)
    side_inputs: Mapping[str, str] = field(default_factory=dict)  # local name -> access pattern
    environment: EnvironmentId | None = None  # None: the runner executes it
    accumulator_coder: CoderId | None = None  # combines only
    restriction_coder: CoderId | None = None  # splittable DoFns only
    element_coder: CoderId | None = None  # TestStream only: of its elements
    state_ids: tuple[str, ...] = ()
    timer_families: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()  # sorted; see ``urns.DECLARED``
    requires_stable_input: bool = False
    requires_time_sorted_input: bool = False
    finalizes_bundles: bool = False
    needs_all_input: bool = False  # a full-window partition, which emits at the end of its input
    takes_partition: bool = False  # its bundle must have all elements of one task
    # What its resource hints ask for, which changes no result: a job continues with other hints.
    resources: Resources = field(default=NO_RESOURCES, compare=False)
    breaks_fusion: bool = False  # set by ``insert_fusion_breaks`` only

    @property
    def step(self) -> str:
        """The name by which users know it: that of the step they have applied, without its parts.

        Of the parts of Beam's own composites, it is the name of the composite, as in
        ``WriteToText`` for ``WriteToText/Write/WriteImpl/FinalizeWrite``.
        """
        return self.part_of or self.name

    @property
    def main_inputs(self) -> Mapping[str, PCollectionId]:
        return {name: id_ for name, id_ in self.inputs.items() if name not in self.side_inputs}

    @property
    def is_keyed(self) -> bool:
        """Whether its input must be partitioned by key: for state, timers, or the order of time."""
        return bool(self.state_ids or self.timer_families or self.requires_time_sorted_input)


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedStage:
    """Transforms that run together, found by ``fuse``. ``plan.build`` makes a ``Stage`` of it.

    A Flatten that was unzipped is in each of its stages as a separate
    transform, whose ``inputs`` are only those of that stage. So, in a fused
    graph, several transforms may make one collection, each a part of it.
    """

    input: PCollectionId
    transforms: tuple[TransformId, ...]  # in topological order; empty: the input is passed on
    outputs: tuple[PCollectionId, ...]  # what transforms of other stages read
    environment: EnvironmentId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A pipeline. ``transforms`` is in topological order: producers before consumers.

    ``keeps_code_apart``: no code of the pipeline may run in the Python workers, and its rows have
    the encoding of SDK harnesses, even if no environment demands this.

    No coder contains itself, nor is any too large to be walked as a tree.
    """

    transforms: Mapping[TransformId, Transform]
    pcollections: Mapping[PCollectionId, PCollection]
    coders: Mapping[CoderId, Coder]
    windowings: Mapping[WindowingId, Windowing]
    environments: Mapping[EnvironmentId, Environment] = field(default_factory=dict)
    requirements: tuple[str, ...] = ()  # proto ``Pipeline.requirements``
    stages: tuple[FusedStage, ...] = ()  # set by ``fuse`` only; producers before consumers
    keeps_code_apart: bool = False
