"""Decides on each call of the Fn API, before a service sees it, whether it is served."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from typing_extensions import override

STRANGER = "the worker_id in this call's metadata belongs to no SDK harness of this runner"
MAX_CALLS_OF_A_KIND = 16
"""The most calls of one method that a harness may have at a time. Beam's SDKs (2.77) have one
stream of each kind, a second one of log lines while a container starts, and ten calls for files."""
_DESCRIPTORS = "/org.apache.beam.model.fn_execution.v1.BeamFnControl/GetProcessBundleDescriptor"


class Doorman(grpc.ServerInterceptor):  # type: ignore[misc]
    """Rejects calls without the id of a known harness, and calls of a harness that has too many.

    Each call has a thread, and one harness must not take those of the others.

    Only a descriptor may be requested without the id of a harness, as the TypeScript SDK does:
    the id of a descriptor cannot be guessed, since it has a random part and a hash of the content.

    Threads: any.

    Args:
        is_known: Whether a worker id is that of a harness that this process has started.
    """

    def __init__(self, is_known: Callable[[str], bool]) -> None:
        self._is_known = is_known
        self._calls: Counter[tuple[str, str]] = Counter()  # by worker id and method
        self._lock = threading.Lock()

    @override
    def intercept_service(self, continuation: Any, details: Any) -> Any:
        id_ = worker_id_in(details.invocation_metadata)
        if not (self._is_known(id_) or (not id_ and details.method == _DESCRIPTORS)):
            # A handler of a stream aborts before the first message, whatever the method is.
            return grpc.stream_stream_rpc_method_handler(_turn_away)
        handler = continuation(details)
        if handler is None:
            return None

        def answer(requests: Iterator[Any], context: Any) -> Iterator[Any]:
            self._admit((id_, details.method), context)
            return _answer(handler, requests, context)

        # Of a stream, for the same reason: gRPC would wait for the request before ``answer``.
        return grpc.stream_stream_rpc_method_handler(
            answer, handler.request_deserializer, handler.response_serializer
        )

    def _admit(self, call: tuple[str, str], context: Any) -> None:
        """Count a call until its end, or abort it."""
        with self._lock:
            is_too_much = self._calls[call] >= MAX_CALLS_OF_A_KIND
            if not is_too_much:
                self._calls[call] += 1
        if is_too_much:
            id_, method = call
            name = f"the SDK harness {id_.rpartition('-')[0]}" if id_ else "SDK harnesses"
            context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{name} may have {MAX_CALLS_OF_A_KIND} calls of {method} at a time, and has them",
            )
        if not context.add_callback(lambda: self._release(call)):
            self._release(call)

    def _release(self, call: tuple[str, str]) -> None:
        with self._lock:
            self._calls[call] -= 1
            if not self._calls[call]:
                del self._calls[call]


def _answer(handler: Any, requests: Iterator[Any], context: Any) -> Iterator[Any]:
    if handler.request_streaming:
        answers: Iterator[Any] = handler.stream_stream(requests, context)
        return answers
    request = next(requests, None)
    if request is None:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no request")
    if handler.response_streaming:
        answers = handler.unary_stream(request, context)
        return answers
    return iter([handler.unary_unary(request, context)])


def _turn_away(requests: Any, context: Any) -> Any:
    context.abort(grpc.StatusCode.UNAUTHENTICATED, STRANGER)


def worker_id_in(metadata: Any) -> str:
    """Return the worker id in a call's metadata; empty: there is none."""
    return next((value for name, value in metadata if name == "worker_id"), "")
