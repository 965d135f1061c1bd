"""One bundle on an SDK harness, as a state machine: received messages in, actions out.

No gRPC, no threads, no clock: ``harness.remote.bundle`` has those.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from beam_spark_runner.core.errors import FnApiProtocolError, InvariantError, RunnerError
from beam_spark_runner.core.ids import TimerFamilyId, TransformId


@dataclass(frozen=True, slots=True)
class InputEnded:
    """The runner has sent the last of the main input."""


@dataclass(frozen=True, slots=True)
class OutputArrived:
    """The data stream brought some of a sink's output: whole elements, one after the other."""

    transform: TransformId
    coded_elements: bytes


@dataclass(frozen=True, slots=True)
class OutputEnded:
    """The data stream said that a sink's output is complete."""

    transform: TransformId


@dataclass(frozen=True, slots=True)
class TimersArrived:
    """The data stream brought timers that were set or cleared, one after the other."""

    family: TimerFamilyId
    coded_timers: bytes


@dataclass(frozen=True, slots=True)
class TimersEnded:
    """The data stream said that no more timers of a family come."""

    family: TimerFamilyId


@dataclass(frozen=True, slots=True)
class Responded:
    """The control stream brought the answer to the process-bundle instruction.

    ``error``: the SDK's text if the bundle failed. ``coded_response``: a
    ProcessBundleResponse else.
    """

    error: str
    coded_response: bytes = b""


@dataclass(frozen=True, slots=True)
class Lost:
    """There is no harness any more, or it broke the protocol elsewhere."""

    error: RunnerError


@dataclass(frozen=True, slots=True)
class Silent:
    """Nothing was received for as long as the runner waits for outputs that are due."""

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
    """Hand elements to the receiver of a sink."""

    transform: TransformId
    coded_elements: bytes


@dataclass(frozen=True, slots=True)
class TakeTimers:
    """Note timers that were set or cleared."""

    family: TimerFamilyId
    coded_timers: bytes


@dataclass(frozen=True, slots=True)
class Complete:
    """The bundle is whole: outputs and timers are here, and the SDK has said that it is done."""

    coded_response: bytes


@dataclass(frozen=True, slots=True)
class FailUserCode:
    """The SDK reports what user code, or a coder, raised."""

    error_text: str


@dataclass(frozen=True, slots=True)
class Fail:
    """The bundle cannot go on."""

    error: RunnerError


Action: TypeAlias = Deliver | TakeTimers | Complete | FailUserCode | Fail


class BundleProtocol:
    """What may follow what in one bundle.

    The control stream and the data stream run apart from each other: outputs may come
    after the response, and the response before the last outputs. Once the bundle has
    ended, by ``Complete``, ``Fail`` or ``FailUserCode``, events change nothing more.

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
        self._known = frozenset(self._awaited)
        self._input_ended = False
        self._coded_response: bytes | None = None
        self.has_ended = False

    @property
    def awaits_outputs_only(self) -> bool:
        """Whether the SDK has said that it is done, but some of its outputs are missing."""
        return self._coded_response is not None and not self.has_ended

    def on(self, event: Event) -> Sequence[Action]:
        """Take one event.

        Raises:
            InvariantError: the runner itself is at fault.
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
                missing = ", ".join(sorted(map(_named, self._awaited)))
                return self._fail(
                    FnApiProtocolError(
                        f"bundle {self.instruction}: the SDK harness has reported its end, but "
                        f"nothing came on the data stream for {waited_s:.0f} s; the outputs of "
                        f"{missing} are not complete"
                    )
                )

    def _on_response(self, error: str, coded_response: bytes) -> Sequence[Action]:
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
        if output in self._known:
            what = "after its end"
        elif isinstance(output, TimerFamilyId):
            what = "that has no timers of that family"
        else:
            what = "that has no sink of that id"
        return FnApiProtocolError(
            f"bundle {self.instruction}: the SDK harness sent output of {_named(output)} {what}"
        )


def _named(output: TransformId | TimerFamilyId) -> str:
    if isinstance(output, TimerFamilyId):
        return f"{output.transform} (timers {output.family})"
    return output
