"""Records the messages of all gRPC servers of a process and of those that it starts.

``environment`` has Python import this module at its start, in all processes that inherit it.
"""

import os
import threading
from pathlib import Path
from typing import Any

import grpc

from tests.fuzz.corpus import NO_STAGE, Recorded, framed

_FOLDER = "MESSAGES_RECORDED_TO"


def environment(folder: Path) -> dict[str, str]:
    """Return variables with which a Python process records its messages.

    Args:
        folder: Gets a file of frames for each process, whose kinds are ``<`` for what a
            client has sent or ``>`` for answers, the method, a space, and the id of the harness.
    """
    start = folder / "start"
    start.mkdir(parents=True, exist_ok=True)
    (start / "sitecustomize.py").write_text("import integration.message_tap as tap; tap.install()")
    root = Path(__file__).parents[1]
    paths = [str(start), str(root), os.environ.get("PYTHONPATH", "")]
    return {_FOLDER: str(folder), "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def install() -> None:
    """Record the messages of each server that this process makes."""
    make = grpc.server

    def server(pool: Any, *args: Any, interceptors: Any = (), **kwargs: Any) -> Any:
        return make(pool, *args, interceptors=[_Tap(), *interceptors], **kwargs)

    grpc.server = server


class _Tap(grpc.ServerInterceptor):  # type: ignore[misc]
    """Writes down what passes."""

    def __init__(self) -> None:
        path = Path(os.environ[_FOLDER]) / f"{os.getpid()}.frames"
        self._file = path.open("ab", buffering=0)
        self._lock = threading.Lock()

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = continuation(details)
        if handler is None:
            return None
        read, write = handler.request_deserializer, handler.response_serializer
        worker = dict(details.invocation_metadata).get("worker_id", "")

        def request(coded: bytes) -> Any:
            self._take(f"<{details.method} {worker}", coded)
            return coded if read is None else read(coded)

        def response(message: Any) -> bytes:
            coded = message if write is None else write(message)
            self._take(f">{details.method} {worker}", coded)
            return bytes(coded)

        return handler._replace(request_deserializer=request, response_serializer=response)

    def _take(self, kind: str, coded: bytes) -> None:
        with self._lock:
            self._file.write(framed(Recorded(kind, NO_STAGE, coded)))
