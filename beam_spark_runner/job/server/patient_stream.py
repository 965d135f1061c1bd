"""A bidirectional stream with a client that may fall silent."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from typing_extensions import override

from beam_spark_runner.job.server.refusals import SilentClientError


class PatientStream(Iterator[Any]):
    """The messages of a client, each of which must arrive within a limit of time.

    gRPC waits for a client without limit, to receive and to send. So a thread receives the
    messages: one at a time, since gRPC's flow control would not work otherwise.

    Threads: one iterates and sends; any may call ``fail``.

    Args:
        incoming: The messages, as gRPC passes them to a method of a servicer.
        cancel: Ends the call, without a reason. Called if the client receives nothing any more.
        patience_s: The limit, in seconds.
    """

    def __init__(
        self, incoming: Iterator[Any], cancel: Callable[[], object], patience_s: float
    ) -> None:
        self._incoming = incoming
        self._cancel = cancel
        self._patience_s = patience_s
        self._sending_since_s: float | None = None
        self._requests: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._receive, name="job-api-staging", daemon=True).start()

    @override
    def __next__(self) -> Any:
        """Return the next message.

        Raises:
            SilentClientError: None has arrived in time.
            Exception: The call was ended, by the client or by ``fail``.
        """
        self._requests.put(True)
        try:
            arrived = self._arrived.get(timeout=self._patience_s)
        except queue.Empty:
            raise SilentClientError(
                f"the client has sent nothing for {self._patience_s:g} s while it staged files"
            ) from None
        if isinstance(arrived, BaseException):
            raise arrived
        return arrived

    def send(self, messages: Iterator[Any]) -> Iterator[Any]:
        """Yield messages to gRPC, and cancel the call if one of them is not sent in time."""
        for message in messages:
            self._sending_since_s = time.monotonic()
            yield message
            self._sending_since_s = None

    def fail(self, error: Exception) -> None:
        """Let the thread that iterates raise an error, now or when it wants the next message."""
        self._arrived.put(error)

    def close(self) -> None:
        """End the thread that receives; it may be waiting for gRPC until the call has ended."""
        self._requests.put(False)

    def _receive(self) -> None:
        while self._is_wanted():
            try:
                self._arrived.put(next(self._incoming))
            except BaseException as error:  # StopIteration, too
                self._arrived.put(error)
                return

    def _is_wanted(self) -> bool:
        """Wait until a message is wanted; return False after ``close``."""
        while True:
            try:
                return self._requests.get(timeout=self._patience_s)
            except queue.Empty:
                since_s = self._sending_since_s
                if since_s is not None and time.monotonic() - since_s >= self._patience_s:
                    self._cancel()
