"""The protocol of one bundle on an SDK harness, as a state machine from messages to actions.

No gRPC, no threads, no clock: ``harness.remote.bundle_messages`` has those.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from beam_spark_runner.core.errors import FnApiProtocolError, InvariantError, RunnerError
from beam_spark_runner.core.ids import TimerFamilyId, TransformId


@dataclass(frozen=True, slots=True)
class InputEnded:
    """The runner has sent all of the main input."""


@dataclass(frozen=True, slots=True)
class OutputArrived:
    """Whole elements of a sink's output, concatenated, have arrived on the data stream."""

    transform: TransformId
    coded_elements: bytes


@dataclass(frozen=True, slots=True)
class OutputEnded:
    """A sink's output has been marked as complete on the data stream."""

    transform: TransformId


@dataclass(frozen=True, slots=True)
class TimersArrived:
    """Timers that were set or cleared, concatenated, have arrived on the data stream."""

    family: TimerFamilyId
    coded_timers: bytes


@dataclass(frozen=True, slots=True)
class TimersEnded:
    """The timers of a family have been marked as complete on the data stream."""

    family: TimerFamilyId


@dataclass(frozen=True, slots=True)
class Responded:
    """The response to the process-bundle instruction has arrived on the control stream.

    ``error``: the SDK's error text if the bundle failed, else empty. ``coded_response``: a
    serialised ProcessBundleResponse.
    """

    error: str
    coded_response: bytes = b""


@dataclass(frozen=True, slots=True)
class Lost:
    """The harness is lost, or has violated the protocol outside of this bundle."""

    error: RunnerError


@dataclass(frozen=True, slots=True)
class Silent:
    """Nothing has been received for the time that the runner waits for missing outputs."""

    waited_s: float


Event: TypeAlias = (
    InputEnded
    | OutputArrived
    | OutputEnded
    | TimersArrived
    | TimersEnded
    | Responded
    | Lost
    | Silent
)


@dataclass(frozen=True, slots=True)
class Deliver:
    """Pass elements to the receiver of a sink."""

    transform: TransformId
    coded_elements: bytes


@dataclass(frozen=True, slots=True)
class TakeTimers:
    """Record timers that were set or cleared."""

    family: TimerFamilyId
    coded_timers: bytes


@dataclass(frozen=True, slots=True)
class Complete:
    """The bundle is complete: its response and all its outputs and timers have arrived."""

    coded_response: bytes


@dataclass(frozen=True, slots=True)
class FailUserCode:
    """Fail the bundle with an exception of user code or a coder, which the SDK has reported."""

    error_text: str


@dataclass(frozen=True, slots=True)
class Fail:
    """Fail the bundle with an error that is not from user code."""

    error: RunnerError


Action: TypeAlias = Deliver | TakeTimers | Complete | FailUserCode | Fail


class BundleProtocol:
    """Checks the order of the events of one bundle, and turns them into actions.

    The control stream and the data stream are independent: the response may arrive before the
    last outputs or after them. Once the bundle has ended, by ``Complete``, ``Fail`` or
    ``FailUserCode``, further events are ignored.

    Source: proto ``BeamFnControl``, ``BeamFnData``; Beam's ``RegisterAndProcessBundleOperation``.
    """

    def __init__(
        self,
        instruction: str,
        sinks: Collection[TransformId],
        families: Collection[TimerFamilyId] = (),
    ) -> None:
        self.instruction = instruction
        self._awaited: set[TransformId | TimerFamilyId] = {*sinks, *families}
        self._outputs = frozenset(self._awaited)
        self._input_ended = False
        self._coded_response: bytes | None = None
        self.has_ended = False
        self.has_answered = False  # so that its user code no longer runs

    @property
    def awaits_outputs_only(self) -> bool:
        """Whether the response has arrived, but outputs or timers are missing."""
        return self._coded_response is not None and not self.has_ended

    def on(self, event: Event) -> Sequence[Action]:
        """Take one event; return the actions that follow from it.

        Raises:
            InvariantError: The runner has ended the input twice.
        """
        if self.has_ended:
            return ()
        match event:
            case InputEnded():
                if self._input_ended:
                    raise InvariantError(f"bundle {self.instruction}: its input ended twice")
                self._input_ended = True
                return ()
            case OutputArrived(transform, coded_elements):
                if transform not in self._awaited:
                    return self._fail(self._unexpected(transform))
                return (Deliver(transform, coded_elements),) if coded_elements else ()
            case OutputEnded(transform):
                if transform not in self._awaited:
                    return self._fail(self._unexpected(transform))
                self._awaited.remove(transform)
                return self._maybe_complete()
            case TimersArrived(family, coded_timers):
                if family not in self._awaited:
                    return self._fail(self._unexpected(family))
                return (TakeTimers(family, coded_timers),) if coded_timers else ()
            case TimersEnded(family):
                if family not in self._awaited:
                    return self._fail(self._unexpected(family))
                self._awaited.remove(family)
                return self._maybe_complete()
            case Responded(error, coded_response):
                return self._on_response(error, coded_response)
            case Lost(lost):
                return self._fail(lost)
            case Silent(waited_s):
                if not self.awaits_outputs_only:
                    return ()
                names = ", ".join(sorted(map(_name_of, self._awaited)))
                return self._fail(
                    FnApiProtocolError(
                        f"bundle {self.instruction}: the SDK harness has reported its end, but "
                        f"nothing came on the data stream for {waited_s:.0f} s; the outputs of "
                        f"{names} are not complete"
                    )
                )

    def _on_response(self, error: str, coded_response: bytes) -> Sequence[Action]:
        self.has_answered = True
        if self._coded_response is not None:
            return self._fail(
                FnApiProtocolError(f"bundle {self.instruction}: the SDK harness answered twice")
            )
        if error:
            self.has_ended = True
            return (FailUserCode(error),)
        if not self._input_ended:
            return self._fail(
                FnApiProtocolError(
                    f"bundle {self.instruction}: the SDK harness reported its end before it had "
                    "all of its input"
                )
            )
        self._coded_response = coded_response
        return self._maybe_complete()

    def _maybe_complete(self) -> Sequence[Action]:
        if self._coded_response is None or self._awaited:
            return ()
        self.has_ended = True
        return (Complete(self._coded_response),)

    def _fail(self, error: RunnerError) -> Sequence[Action]:
        self.has_ended = True
        return (Fail(error),)

    def _unexpected(self, output: TransformId | TimerFamilyId) -> FnApiProtocolError:
        if output in self._outputs:
            reason = "after its end"
        elif isinstance(output, TimerFamilyId):
            reason = "that has no timers of that family"
        else:
            reason = "that has no sink of that id"
        return FnApiProtocolError(
            f"bundle {self.instruction}: the SDK harness sent output of {_name_of(output)} {reason}"
        )


def _name_of(output: TransformId | TimerFamilyId) -> str:
    if isinstance(output, TimerFamilyId):
        return f"{output.transform} (timers {output.family})"
    return output
