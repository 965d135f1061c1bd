"""The control service: sends instructions to an SDK harness and receives its responses."""

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc
from typing_extensions import override

from beam_spark_runner.core.errors import FnApiProtocolError, RunnerError, SdkDisconnectedError
from beam_spark_runner.harness.fn_api.services.instructions import InstructionIds
from beam_spark_runner.harness.fn_api.services.stream_errors import reading_failed

Answered = Callable[[beam_fn_api_pb2.InstructionResponse], None]


class ControlStream:
    """The control stream of one SDK harness.

    Args:
        instructions: The ids of the instructions that the harness has got.
        lose: Called if the stream ends unexpectedly, or the harness violates the protocol.

    Threads: any. Responses are passed on in the thread that reads the stream.
    """

    def __init__(self, instructions: InstructionIds, lose: Callable[[RunnerError], None]) -> None:
        self._instructions = instructions
        self._lose = lose
        self._requests: queue.SimpleQueue[beam_fn_api_pb2.InstructionRequest | None] = (
            queue.SimpleQueue()
        )
        self._callbacks: dict[str, Answered] = {}
        self._is_closed = False
        self._lock = threading.Lock()
        self._is_served = False
        self.connected = threading.Event()
        self.descriptors: dict[str, beam_fn_api_pb2.ProcessBundleDescriptor] = {}

    def ask(self, request: beam_fn_api_pb2.InstructionRequest, then: Answered) -> None:
        """Send an instruction; ``then`` gets the response, if one arrives."""
        self._callbacks[request.instruction_id] = then
        self._requests.put(request)

    def forget(self, instruction: str) -> None:
        """Ignore the response to an instruction."""
        self._callbacks.pop(instruction, None)

    def serve(
        self, responses: Iterator[beam_fn_api_pb2.InstructionResponse]
    ) -> Iterator[beam_fn_api_pb2.InstructionRequest]:
        """Serve the stream: yields requests until it is closed.

        Raises:
            FnApiProtocolError: The harness has opened a control stream before.
        """
        with self._lock:
            if self._is_served:
                raise FnApiProtocolError("the SDK harness opened a second control stream")
            self._is_served = True
        threading.Thread(
            target=self._read, args=(responses,), name="fn-api-control", daemon=True
        ).start()
        self.connected.set()
        while (request := self._requests.get()) is not None:
            yield request

    def close(self) -> None:
        """End the stream, upon which the harness exits."""
        self._is_closed = True
        self._requests.put(None)

    def _read(self, responses: Iterator[beam_fn_api_pb2.InstructionResponse]) -> None:
        try:
            for response in responses:
                then = self._callbacks.pop(response.instruction_id, None)
                if then is not None:
                    then(response)
                elif not self._instructions.was_issued(response.instruction_id):
                    self._lose(
                        FnApiProtocolError(
                            "the SDK harness answered the instruction "
                            f"{response.instruction_id!r:.100}, which nobody sent"
                        )
                    )
                    return
            problem = "the SDK harness closed its control stream"
        except grpc.RpcError:
            problem = "the control stream to the SDK harness broke"
        except Exception as error:  # bundles wait for responses that only this thread reads
            self._lose(reading_failed(error, "control"))
            return
        finally:
            self._requests.put(None)
        if not self._is_closed:
            self._lose(SdkDisconnectedError(problem))


class ControlService(beam_fn_api_pb2_grpc.BeamFnControlServicer):  # type: ignore[misc]
    """The gRPC servicer.

    Args:
        stream_of: Finds the stream of the calling harness.
        descriptor_of: Finds a descriptor by id, for the calling harness; None: there is none.
    """

    def __init__(
        self,
        stream_of: Callable[[Any], ControlStream],
        descriptor_of: Callable[[Any, str], beam_fn_api_pb2.ProcessBundleDescriptor | None],
    ) -> None:
        self._stream_of = stream_of
        self._descriptor_of = descriptor_of

    @override
    def Control(self, responses: Any, context: Any) -> Iterator[Any]:
        control = self._stream_of(context)
        try:
            yield from control.serve(responses)
        except FnApiProtocolError as error:
            context.abort(grpc.StatusCode.ALREADY_EXISTS, str(error))

    def GetProcessBundleDescriptor(self, request: Any, context: Any) -> Any:
        """Return the descriptor of a stage that the harness runs."""
        id_ = request.process_bundle_descriptor_id
        descriptor = self._descriptor_of(context, id_)
        if descriptor is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"there is no bundle descriptor {id_}")
        return descriptor
