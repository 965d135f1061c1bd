"""The interface of harnesses: stages that run bundles.

The embedded harness runs the Python SDK in this process, the remote one talks
to an SDK worker over gRPC. ``spark.task`` knows only these protocols.
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


class SideInputLookup(Protocol):
    """The gathered rows of one side input, by window and key.

    Windows and keys are encoded as they stand in a StateKey. ``id`` is unique among all
    side inputs of all jobs, and begins with the job's id and a slash.
    """

    @property
    def id(self) -> str: ...

    def values(self, window: bytes, key: bytes | None) -> Iterator[tuple[bytes, int]]:
        """Find the values of a key; all elements where ``key`` is None.

        Returns:
            Nested encodings of whole values, one after the other, and how many they are.
        """
        ...


class Residual(NamedTuple):
    """What is left of a restriction, as a sized element of the stage's input."""

    element: WindowedValue
    delay_us: int  # before which it must not be processed; processing time
    hold_us: int  # event time that waits for it: the least of its output watermarks


class Activity(NamedTuple):
    """What a bundle is at, as it is seen from outside."""

    step: str  # full name of the step whose code runs; several, if it is not known which; or empty
    seen: Hashable = 0  # differs whenever something has happened


IDLE = Activity("")
"""No user code runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleResult:
    """What is left to know once a bundle has finished.

    ``residual_roots``: what a splittable DoFn has deferred, as ProcessBundleResponse has it.
    ``deferred``: the same from a harness in this process, as the objects that it is.
    ``callbacks``: of bundle finalization, if user code has registered any.
    """

    monitoring_infos: tuple[bytes, ...]  # serialised MonitoringInfo protos
    residual_roots: tuple[beam_fn_api_pb2.DelayedBundleApplication, ...] = ()
    deferred: tuple[Residual, ...] = ()
    callbacks: tuple[Callbacks, ...] = ()


class BundleInput(Protocol):
    """Takes the elements of the main input; outputs go to the receivers meanwhile."""

    def push(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """Process some values; each has the timestamp, windows and pane of its origin."""
        ...

    def flush(self) -> None:
        """Process what was pushed so far: some of it may wait inside for more of its kind.

        May be called while another bundle is under way in this thread.
        """
        ...

    def advance_key(self) -> None:
        """No more elements come of the key that was pushed last: its time advances.

        The timers that are due fire, and its state and timers are dropped or stored, as the
        bundle's ``KeyPolicy`` says. Only where the stage is keyed.
        """
        ...


class StoringInput(BundleInput, Protocol):
    """The input of a bundle whose ``KeyPolicy`` stores keys."""

    def begin_key(self, key: bytes) -> None:
        """Load a key that gets no elements, so that its timers fire when it advances.

        Args:
            key: encoded, nested.
        """
        ...

    def advance_key_until(self, hold_us: int) -> None:
        """Advance a key as ``advance_key`` does, but not beyond an event time.

        Args:
            hold_us: of elements of the key that still wait in front of the stage.
        """
        ...


class SteppedInput(StoringInput, Protocol):
    """The input of a bundle whose keys get elements and timers in one order of time."""

    def fire_until(self, watermark_us: int) -> None:
        """Fire the timers of the key that are due at an event time. More elements of it come."""
        ...


class Bundle(BundleInput, Protocol):
    """One run of a stage over some elements. One thread at a time.

    Either ``finish`` or ``abort`` is called once, and nothing after it.
    """

    def enter(self) -> None:
        """Charge what this thread counts from now on to this bundle; before a run of pushes."""
        ...

    def push_from_within(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """Like ``push``, for what another bundle hands over while it runs itself."""
        ...

    def split(
        self, fraction_of_remainder: float
    ) -> Sequence[beam_fn_api_pb2.DelayedBundleApplication]:
        """Keep about that much of the work that is left, and give the rest back.

        0: end as soon as the element under way allows. What was pushed and has not been
        begun is given back, too. The bundle goes on with what it keeps.

        Returns:
            Residual roots as ProcessBundleSplitResponse has them; none if there was nothing
            to split, now.

        Threads: any, while another is in ``push`` or ``finish``. What is pushed after a split
        is either processed or among the residual roots of the result.

        Raises:
            BundleFailedError: the restriction tracker raised. The bundle must be aborted.
        """
        ...

    def progress(self) -> Sequence[bytes]:
        """Return serialised MonitoringInfos of what was done so far.

        Threads: any, at any time before ``finish`` or ``abort`` has returned. Best effort: it may
        raise whatever reading what another thread changes raises.
        """
        ...

    def activity(self) -> Activity:
        """Say what it is at. Threads: one that is not the bundle's."""
        ...

    def status(self) -> str:
        """Return where the code stands that runs, as text for people. Threads: any."""
        ...

    def give_up(self, error: RunnerError) -> bool:
        """Have the bundle's thread raise an error, where it waits for what runs elsewhere.

        Returns:
            False: what runs is in the bundle's own thread.

        Threads: any.
        """
        ...

    def finish(self) -> BundleResult:
        """End the input, run ``finish_bundle``, and deliver the last outputs."""
        ...

    def abort(self) -> None:
        """Forget the bundle. Its outputs are void; the stage's DoFns are torn down."""
        ...


class StageHarness(Protocol):
    """A stage made executable: its DoFns are set up and serve one bundle after another."""

    @property
    def input_coder(self) -> WindowedValueCoder:
        """Coder of the elements that ``Bundle.push`` takes."""
        ...

    @property
    def output_coders(self) -> Mapping[PCollectionId, WindowedValueCoder]:
        """Coder of each collection that leaves the stage."""
        ...

    def start_bundle(
        self,
        receivers: Mapping[PCollectionId, Receiver],
        side_inputs: Mapping[tuple[str, str], SideInputLookup],
        policy: KeyPolicy = BATCH,
    ) -> Bundle:
        """Begin a bundle.

        Args:
            receivers: one for each of ``output_coders``.
            side_inputs: (transform id, local name) -> lookup.
            policy: what is done with a key after its last element; where the stage is keyed.

        Raises:
            BundleFailedError: user code raised in ``setup`` or ``start_bundle``.
        """
        ...
