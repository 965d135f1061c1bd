"""The status service: requests the status of an SDK harness."""

import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc
from typing_extensions import override

MAX_CHARACTERS = 20_000


class StatusStream:
    """The status stream of one SDK harness, if it opens one. Threads: any."""

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[beam_fn_api_pb2.WorkerStatusRequest | None] = (
            queue.SimpleQueue()
        )
        self._answers: dict[str, queue.SimpleQueue[beam_fn_api_pb2.WorkerStatusResponse]] = {}
        self._numbers = itertools.count(1)
        self._is_open = threading.Event()

    def ask(self, timeout_s: float) -> str | None:
        """Return the status of the harness, usually the stacks of its threads.

        Returns:
            The text, cut off after ``MAX_CHARACTERS``; None if the harness has no status stream,
            or does not answer in time.
        """
        if not self._is_open.is_set():
            return None
        id_ = str(next(self._numbers))
        answers: queue.SimpleQueue[beam_fn_api_pb2.WorkerStatusResponse] = queue.SimpleQueue()
        self._answers[id_] = answers
        self._requests.put(beam_fn_api_pb2.WorkerStatusRequest(id=id_))
        try:
            answer = answers.get(timeout=timeout_s)
        except queue.Empty:
            return None
        finally:
            self._answers.pop(id_, None)
        text: str = answer.error or answer.status_info
        return text[:MAX_CHARACTERS]

    def serve(
        self, responses: Iterator[beam_fn_api_pb2.WorkerStatusResponse]
    ) -> Iterator[beam_fn_api_pb2.WorkerStatusRequest]:
        """Serve the stream: yields requests until it is closed."""
        threading.Thread(
            target=self._read, args=(responses,), name="fn-api-status", daemon=True
        ).start()
        self._is_open.set()
        while (request := self._requests.get()) is not None:
            yield request

    def close(self) -> None:
        """End the stream."""
        self._is_open.clear()
        self._requests.put(None)

    def _read(self, responses: Iterator[beam_fn_api_pb2.WorkerStatusResponse]) -> None:
        try:
            for response in responses:
                answers = self._answers.get(response.id)
                if answers is not None:
                    answers.put(response)
        except grpc.RpcError:
            pass  # the control stream reports the loss of the harness
        finally:
            self.close()


class StatusService(beam_fn_api_pb2_grpc.BeamFnWorkerStatusServicer):  # type: ignore[misc]
    """The gRPC servicer. ``stream_of`` finds the stream of the calling harness."""

    def __init__(self, stream_of: Callable[[Any], StatusStream]) -> None:
        self._stream_of = stream_of

    @override
    def WorkerStatus(self, responses: Any, context: Any) -> Iterator[Any]:
        return self._stream_of(context).serve(responses)
