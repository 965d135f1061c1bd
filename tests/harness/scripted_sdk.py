"""An SDK harness that does what a test says, over real gRPC; and the pool that starts it."""

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc

from beam_spark_runner.harness.fn_api.serving import stop_serving

_END = object()


def _until_end(items: "queue.SimpleQueue[Any]") -> Iterator[Any]:
    return iter(items.get, _END)


class ScriptedSdk:
    """The SDK's ends of the control, data and state streams."""

    def __init__(self, url: str, worker_id: str) -> None:
        options = [
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        self.channel = grpc.insecure_channel(url, options=options)
        self.metadata = [("worker_id", worker_id)]
        self._control: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._data: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._status: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.control_stub = beam_fn_api_pb2_grpc.BeamFnControlStub(self.channel)
        self.instructions: Any = None
        self.elements: Any = None
        self.asked: Any = None

    def connect(self) -> "ScriptedSdk":
        """Open the control stream."""
        self.instructions = self.control_stub.Control(
            _until_end(self._control), metadata=self.metadata
        )
        return self

    def open_data(self) -> None:
        stub = beam_fn_api_pb2_grpc.BeamFnDataStub(self.channel)
        self.elements = stub.Data(_until_end(self._data), metadata=self.metadata)

    def open_status(self) -> None:
        stub = beam_fn_api_pb2_grpc.BeamFnWorkerStatusStub(self.channel)
        self.asked = stub.WorkerStatus(_until_end(self._status), metadata=self.metadata)

    def tell_status(self, response: Any) -> None:
        self._status.put(response)

    def next_bundle(self) -> tuple[str, Any]:
        """Wait for a bundle: its instruction, and the descriptor of its stage."""
        request = next(self.instructions)
        id_ = request.process_bundle.process_bundle_descriptor_id
        descriptor = self.control_stub.GetProcessBundleDescriptor(
            beam_fn_api_pb2.GetProcessBundleDescriptorRequest(process_bundle_descriptor_id=id_),
            metadata=self.metadata,
        )
        if self.elements is None:
            self.open_data()
        return request.instruction_id, descriptor

    def respond(self, instruction: str, error: str = "", **fields: Any) -> None:
        if not error and not fields:
            fields = {"process_bundle": beam_fn_api_pb2.ProcessBundleResponse()}
        self._control.put(
            beam_fn_api_pb2.InstructionResponse(instruction_id=instruction, error=error, **fields)
        )

    def send(
        self, instruction: str, transform: str, data: bytes = b"", *, is_last: bool = False
    ) -> None:
        block = beam_fn_api_pb2.Elements.Data(
            instruction_id=instruction, transform_id=transform, data=data, is_last=is_last
        )
        self._data.put(beam_fn_api_pb2.Elements(data=[block]))

    def put_elements(self, elements: Any) -> None:
        self._data.put(elements)

    def end_data(self) -> None:
        self._data.put(_END)

    def end_control(self) -> None:
        self._control.put(_END)

    def input_blocks(self, instruction: str) -> Iterator[bytes]:
        """Read the input of a bundle to its end."""
        for elements in self.elements:
            for data in elements.data:
                if data.instruction_id != instruction:
                    continue  # of a bundle that has failed
                if data.data:
                    yield data.data
                if data.is_last:
                    return

    def close(self) -> None:
        self._control.put(_END)
        self._data.put(_END)
        self._status.put(_END)
        self.channel.close()


def sink_of(descriptor: Any) -> str:
    """Id of a stage's only sink."""
    (sink,) = (
        id_ for id_, each in descriptor.transforms.items() if each.spec.urn == "beam:runner:sink:v1"
    )
    return str(sink)


class Pool(beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolServicer):  # type: ignore[misc]
    """A worker pool whose workers run ``script``, each in a thread."""

    def __init__(self, script: Callable[[ScriptedSdk], None]) -> None:
        self._script = script
        self.sdks: list[ScriptedSdk] = []
        self.stopped: list[str] = []
        self.errors: list[BaseException] = []
        self._threads = futures.ThreadPoolExecutor(4)
        self._server = grpc.server(self._threads)
        beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(self, self._server)
        self.url = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def StartWorker(self, request: Any, context: Any) -> Any:
        sdk = ScriptedSdk(request.control_endpoint.url, request.worker_id)
        self.sdks.append(sdk)
        threading.Thread(target=self._run, args=(sdk,), daemon=True).start()
        return beam_fn_api_pb2.StartWorkerResponse()

    def StopWorker(self, request: Any, context: Any) -> Any:
        self.stopped.append(request.worker_id)
        return beam_fn_api_pb2.StopWorkerResponse()

    def _run(self, sdk: ScriptedSdk) -> None:
        try:
            self._script(sdk)
        except (grpc.RpcError, StopIteration):
            pass  # the runner has ended the stream
        except BaseException as error:
            self.errors.append(error)
            sdk.close()  # else the runner waits for a harness that does nothing
            raise

    def close(self) -> None:
        for sdk in self.sdks:
            sdk.close()
        stop_serving(self._server, self._threads)
