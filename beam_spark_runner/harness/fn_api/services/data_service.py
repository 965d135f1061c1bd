"""The data service: elements to and from an SDK harness, in blocks, with flow control.

Neither side fills the other's memory. Outgoing blocks wait in a queue of
``OUTGOING_BYTES``, and gRPC takes from it as the harness reads. Incoming blocks
wait in the inbox of their bundle; while that is full, the stream is not read, so
that the harness's own queue fills up, and its user code waits.

One stream serves all bundles of a harness. While several of them run, a full
inbox must not block the others' outputs, because the thread that empties it may
be waiting for one of these. So it then grows in a file.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc
from typing_extensions import override

from beam_spark_runner.core.errors import FnApiProtocolError, RunnerError, SdkDisconnectedError
from beam_spark_runner.core.ids import TimerFamilyId, TransformId
from beam_spark_runner.harness.fn_api.protocol import (
    Event,
    OutputArrived,
    OutputEnded,
    TimersArrived,
    TimersEnded,
)
from beam_spark_runner.harness.fn_api.services.inbox import Inbox
from beam_spark_runner.harness.fn_api.services.instructions import InstructionIds
from beam_spark_runner.harness.fn_api.services.stream_errors import reading_failed

OUTGOING_BYTES = 8 << 20


class DataStream:
    """The data stream of one SDK harness.

    Args:
        instructions: The ids of the instructions that the harness has got.
        lose: Called if the stream ends unexpectedly, or the harness violates the protocol.

    Threads: any; ``changed`` guards all fields, and is notified of room and of events.
    """

    def __init__(self, instructions: InstructionIds, lose: Callable[[RunnerError], None]) -> None:
        self.changed = threading.Condition()
        self._instructions = instructions
        self._lose = lose
        self._outgoing: deque[tuple[beam_fn_api_pb2.Elements, int]] = deque()
        self._outgoing_bytes = 0
        self._inboxes: dict[str, Inbox] = {}
        self._is_closed = False
        self.is_open = False

    def open(self, instruction: str) -> Inbox:
        """Open the inbox of a bundle."""
        with self.changed:
            inbox = self._inboxes[instruction] = Inbox()
            self.changed.notify_all()
        return inbox

    def forget(self, instruction: str) -> None:
        """Close the inbox of a bundle, and ignore later elements for it."""
        with self.changed:
            inbox = self._inboxes.pop(instruction, None)
            if inbox is not None:
                inbox.close()
            self.changed.notify_all()

    def put(self, instruction: str, event: Event) -> None:
        """Add an event to a bundle's inbox that did not arrive on this stream."""
        with self.changed:
            inbox = self._inboxes.get(instruction)
            if inbox is not None:
                inbox.put(event)
                self.changed.notify_all()

    def put_for_all(self, event: Event) -> None:
        """Add an event to all inboxes."""
        with self.changed:
            for inbox in self._inboxes.values():
                inbox.put(event)
            self.changed.notify_all()

    def next_event(self, inbox: Inbox, timeout_s: float | None = None) -> Event | None:
        """Take the oldest event of a bundle; wait for one if there is a timeout."""
        with self.changed:
            if timeout_s is not None:
                self.changed.wait_for(lambda: len(inbox), timeout_s)
            was_full = inbox.is_full
            event = inbox.next_event()
            if was_full and not inbox.is_full:
                self.changed.notify_all()
        return event

    @property
    def has_room(self) -> bool:
        """Whether more may be sent. ``changed`` is held."""
        return self._outgoing_bytes < OUTGOING_BYTES

    def send(self, elements: beam_fn_api_pb2.Elements, size: int) -> None:
        """Send a block of elements. Does not wait: ask ``has_room`` first."""
        with self.changed:
            self._outgoing.append((elements, size))
            self._outgoing_bytes += size
            self.changed.notify_all()

    def close(self) -> None:
        """End the stream."""
        with self.changed:
            self._is_closed = True
            self.changed.notify_all()

    def serve(
        self, incoming: Iterator[beam_fn_api_pb2.Elements]
    ) -> Iterator[beam_fn_api_pb2.Elements]:
        """Serve the stream: yields blocks to send until it is closed.

        Raises:
            FnApiProtocolError: The harness has opened a data stream before.
        """
        with self.changed:
            if self.is_open:
                raise FnApiProtocolError("the SDK harness opened a second data stream")
            self.is_open = True
        threading.Thread(
            target=self._read, args=(incoming,), name="fn-api-data", daemon=True
        ).start()
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self._outgoing or self._is_closed)
                if not self._outgoing:
                    return
                elements, size = self._outgoing.popleft()
            yield elements
            with self.changed:  # gRPC has written it
                self._outgoing_bytes -= size
                self.changed.notify_all()

    def _read(self, incoming: Iterator[beam_fn_api_pb2.Elements]) -> None:
        try:
            for elements in incoming:
                for data in elements.data:
                    if not self._take(data):
                        return
                for timers in elements.timers:
                    if not self._take_timers(timers):
                        return
            problem = "the SDK harness closed its data stream"
        except grpc.RpcError:
            problem = "the data stream to the SDK harness broke"
        except Exception as error:  # bundles wait for events that only this thread reads
            self._lose(reading_failed(error, "data"))
            return
        finally:
            was_closed = self._is_closed
            self.close()
        if not was_closed:
            self._lose(SdkDisconnectedError(problem))

    def _take_timers(self, timers: beam_fn_api_pb2.Elements.Timers) -> bool:
        family = TimerFamilyId(TransformId(timers.transform_id), timers.timer_family_id)
        with self.changed:
            inbox = self._inboxes.get(timers.instruction_id)
            if inbox is not None:
                if timers.timers:
                    self._wait_for_room(timers.instruction_id, inbox)
                    inbox.put(TimersArrived(family, timers.timers))
                if timers.is_last:
                    inbox.put(TimersEnded(family))
                self.changed.notify_all()
                return True
        return self._is_of_the_past(timers.instruction_id)

    def _take(self, data: beam_fn_api_pb2.Elements.Data) -> bool:
        instruction, transform = data.instruction_id, TransformId(data.transform_id)
        with self.changed:
            inbox = self._inboxes.get(instruction)
            if inbox is not None:
                if data.data:
                    self._wait_for_room(instruction, inbox)
                    inbox.put(OutputArrived(transform, data.data))
                if data.is_last:
                    inbox.put(OutputEnded(transform))
                self.changed.notify_all()
                return True
        return self._is_of_the_past(instruction)

    def _is_of_the_past(self, instruction: str) -> bool:
        """Whether elements belong to an ended bundle; if not, the harness is lost."""
        if self._instructions.was_issued(instruction):
            return True
        self._lose(
            FnApiProtocolError(
                f"the SDK harness sent elements for the instruction {instruction!r:.100}, "
                "which nobody sent"
            )
        )
        return False

    def _wait_for_room(self, instruction: str, inbox: Inbox) -> None:
        self.changed.wait_for(
            lambda: (
                not inbox.is_full
                or len(self._inboxes) > 1
                or instruction not in self._inboxes
                or self._is_closed
            )
        )


class DataService(beam_fn_api_pb2_grpc.BeamFnDataServicer):  # type: ignore[misc]
    """The gRPC servicer. ``stream_of`` finds the stream of the calling harness."""

    def __init__(self, stream_of: Callable[[Any], DataStream]) -> None:
        self._stream_of = stream_of

    @override
    def Data(self, incoming: Any, context: Any) -> Iterator[Any]:
        data = self._stream_of(context)
        try:
            yield from data.serve(incoming)
        except FnApiProtocolError as error:
            context.abort(grpc.StatusCode.ALREADY_EXISTS, str(error))
