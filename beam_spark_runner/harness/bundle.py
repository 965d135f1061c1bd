"""The interface of harnesses: stages that run bundles.

The embedded harness runs the Python SDK in this process, the remote one talks
to an SDK worker over gRPC. ``engine`` knows only these protocols.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from apache_beam.coders import WindowedValueCoder
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.callbacks import Callbacks
from beam_spark_runner.core.errors import RunnerError
from beam_spark_runner.core.ids import PCollectionId
from beam_spark_runner.state.policy import BATCH, KeyPolicy


class Receiver(Protocol):
    """Takes the elements of an output; called from the thread that pushes the bundle's input."""

    def accept(self, windowed_value: WindowedValue) -> Any:
        """Take one element."""
        ...

    def accept_chunk(self, values: list[Any], origins: list[WindowedValue]) -> Any:
        """Take some values; each has the timestamp, windows and pane of its origin."""
        ...


class SideInputValues(Protocol):
    """The gathered values of one side input, by window and key.

    Windows and keys have the encoding of the Fn API's StateKey. ``id`` is unique among all
    side inputs of all jobs, and begins with the job's id and a slash.
    """

    @property
    def id(self) -> str: ...

    def values(self, window: bytes, key: bytes | None) -> Iterator[tuple[bytes, int]]:
        """Yield the values of a key; the elements of all keys if ``key`` is None.

        Yields:
            Concatenated nested encodings of whole values, and the number of values.
        """
        ...


class SideInputLookup(SideInputValues, Protocol):
    """The gathered rows of one side input."""

    def keys(self, window: bytes) -> Iterator[bytes]:
        """Yield the nested encoding of each key of a multimap once, always in the same order."""
        ...


class Residual(NamedTuple):
    """The unprocessed rest of a restriction, as a sized element of the stage's input."""

    element: WindowedValue
    delay_us: int  # processing time that must pass before it is processed
    hold_us: int  # watermark hold, in event time: the least of its output watermarks


class Activity(NamedTuple):
    """The progress of a bundle, for the detection of lulls."""

    step: str  # full name of the step whose code runs; several if it is unclear which; or empty
    seen: Hashable = 0  # changes whenever the bundle makes progress


IDLE = Activity("")
"""No user code runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleResult:
    """The result of a finished bundle.

    ``residual_roots``: deferred restrictions, as in the Fn API's ProcessBundleResponse.
    ``deferred``: deferred restrictions of an embedded harness, not encoded.
    ``callbacks``: callbacks of bundle finalization that user code has registered.
    """

    monitoring_infos: tuple[bytes, ...]  # serialised MonitoringInfo protos
    residual_roots: tuple[beam_fn_api_pb2.DelayedBundleApplication, ...] = ()
    deferred: tuple[Residual, ...] = ()
    callbacks: tuple[Callbacks, ...] = ()


class RecordLeft(NamedTuple):
    """A record of a declarative step that a bundle leaves for a later one.

    Attributes:
        key: Its key, encoded and nested.
        hold_us: The event time at which it holds the watermark.
        coded: The record, as ``SettlingInput.restore`` takes it.
    """

    key: bytes
    hold_us: int
    coded: bytes


class Settled(NamedTuple):
    """How a bundle has settled what was in flight.

    Attributes:
        left: The records that it leaves, in the order of each key.
        is_finished: Whether no records are left, and all timers that were due have fired.
        needs: The descriptions of the callbacks and variables with which records continue, see
            ``transforms.declarative``: another version of the step must have declared them, too.
    """

    left: Sequence[RecordLeft] = ()
    is_finished: bool = True
    needs: frozenset[str] = frozenset()


class BundleInput(Protocol):
    """Takes the elements of the main input; receivers may get outputs during each call."""

    def push(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """Process some values; each has the timestamp, windows and pane of its origin."""
        ...

    def flush(self) -> None:
        """Process the elements that were pushed so far and are still buffered in the bundle.

        May be called while another bundle runs in this thread.
        """
        ...

    def advance_key(self) -> None:
        """Advance the time of the key that was pushed last: all its elements have been pushed.

        The timers that are due fire, and its state and timers are dropped or stored, according
        to the bundle's ``KeyPolicy``. Only for keyed stages.
        """
        ...


class StoringInput(BundleInput, Protocol):
    """The input of a bundle whose ``KeyPolicy`` stores keys."""

    def begin_key(self, key: bytes) -> None:
        """Load a key that gets no elements, so that its timers fire when it advances.

        Args:
            key: The key, encoded, nested.
        """
        ...

    def advance_key_until(self, hold_us: int) -> None:
        """Advance a key as ``advance_key`` does, but not beyond an event time.

        Args:
            hold_us: The watermark hold of elements of the key that wait in front of the stage.
        """
        ...


class SteppedInput(StoringInput, Protocol):
    """The input of a bundle in which elements and timers of a key are interleaved by time."""

    def fire_until(self, watermark_us: int) -> None:
        """Fire the key's timers that are due at an event time; more of its elements may follow."""
        ...


class SettlingInput(SteppedInput, Protocol):
    """The input of a bundle in which a key may wait for a state store, while others continue."""

    def restore(self, records: Sequence[bytes]) -> None:
        """Continue records that an earlier bundle has left, before the first element."""
        ...

    def settle(self) -> Settled:
        """Finish all that is in flight, or leave some of it, if the ``KeyPolicy`` says so."""
        ...


class Bundle(BundleInput, Protocol):
    """One run of a stage over some elements. One thread at a time.

    The last call is either ``finish`` or ``abort``.
    """

    def enter(self) -> None:
        """Assign the metrics of this thread to this bundle; called before a series of pushes."""
        ...

    def push_from_within(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """Process outputs of another bundle like ``push``, while that bundle is running."""
        ...

    def split(
        self, fraction_of_remainder: float
    ) -> Sequence[beam_fn_api_pb2.DelayedBundleApplication]:
        """Keep about this fraction of the remaining work, and return the rest as residuals.

        With 0, the bundle ends as soon as the current element allows. Elements that were pushed
        but not begun may be returned, too. The bundle continues with the work that it keeps.

        Returns:
            Residual roots as in ProcessBundleSplitResponse; none if nothing can be split now.

        Threads: any, while another is in ``push`` or ``finish``. Elements that are pushed after
        a split are either processed or among the residual roots of the bundle's result.

        Raises:
            BundleFailedError: the restriction tracker raised. The bundle must be aborted.
        """
        ...

    def progress(self) -> Sequence[bytes]:
        """Return serialised MonitoringInfos of the bundle so far.

        Threads: any, at any time before ``finish`` or ``abort`` has returned. Best effort: it may
        raise any exception, because it reads data that another thread changes.
        """
        ...

    def samples(self) -> Mapping[PCollectionId, Sequence[bytes]]:
        """Return elements that steps of an SDK harness have emitted lately, as it encodes them.

        An embedded harness has none: ``ElementSamples`` has the elements themselves.

        Threads: as for ``progress``.
        """
        ...

    def activity(self) -> Activity:
        """Return the bundle's progress. Threads: any but the bundle's own."""
        ...

    def status(self) -> str:
        """Return the stacks of the running code, as text for people. Threads: any."""
        ...

    def give_up(self, error: RunnerError) -> bool:
        """Have the bundle's thread raise an error, if it waits for a remote SDK harness.

        Returns:
            False if user code runs in the bundle's own thread, so that nothing was raised.

        Threads: any.
        """
        ...

    def finish(self) -> BundleResult:
        """End the input, run ``finish_bundle``, and deliver the last outputs."""
        ...

    def abort(self) -> None:
        """End the bundle without a result. Its outputs are void; the caller discards the stage."""
        ...


class StageHarness(Protocol):
    """An executable stage, whose DoFns are set up once and process one bundle after another."""

    @property
    def input_coder(self) -> WindowedValueCoder:
        """Coder of the elements that ``Bundle.push`` takes."""
        ...

    @property
    def output_coders(self) -> Mapping[PCollectionId, WindowedValueCoder]:
        """Coder of each output collection of the stage."""
        ...

    def start_bundle(
        self,
        receivers: Mapping[PCollectionId, Receiver],
        side_inputs: Mapping[tuple[str, str], SideInputLookup],
        policy: KeyPolicy = BATCH,
    ) -> Bundle:
        """Begin a bundle.

        Args:
            receivers: One receiver for each collection of ``output_coders``.
            side_inputs: The lookups, by transform id and local name of the side input.
            policy: What happens to a key after its last element. Only for keyed stages.

        Raises:
            BundleFailedError: user code raised in ``setup`` or ``start_bundle``.
        """
        ...
