"""The messages of one worker over the backchannel, from a socket or a growing file."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

from beam_spark_runner.backchannel.transport import read_from
from beam_spark_runner.core.framing import MAX_FRAME_BYTES, Unframer, framed

_PIECE_BYTES = 1 << 16
_MOST_BYTES_OF_A_STRANGER = 1 << 10
_PATIENCE_S = 10.0  # with whoever calls and does not say who it is
_SEND_TIMEOUT_S = 1.0


class SocketStream:
    """A worker that has called. ``worker`` is empty until it has said who it is."""

    def __init__(self, connected: socket.socket) -> None:
        self.worker = ""
        self.socket = connected
        self.socket.settimeout(_SEND_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unframer = Unframer(_MOST_BYTES_OF_A_STRANGER)
        self._began = time.monotonic()

    def greet(self, worker: str) -> None:
        """It has said who it is, and is believed."""
        self.worker = worker
        self._unframer.most_bytes = MAX_FRAME_BYTES

    def is_overdue(self) -> bool:
        """Whether it has not said in time who it is."""
        return not self.worker and time.monotonic() - self._began > _PATIENCE_S

    def messages(self) -> Iterator[bytes]:
        """Read once, and yield the messages that are whole now.

        Raises:
            OSError: it has ended, or broken.
            FrameTooLongError: it is no stream of messages.
        """
        piece = self.socket.recv(_PIECE_BYTES)
        if not piece:
            raise ConnectionResetError("the worker has closed it")
        yield from self._unframer.feed(piece)

    def send(self, message: bytes) -> None:
        """Send a message.

        Raises:
            OSError: it is broken, or the worker takes nothing.
        """
        self.socket.sendall(framed(message))

    def close(self) -> None:
        """End it."""
        self.socket.close()


class FileStream:
    """The same by files: what a worker writes, and beside it what is written for it."""

    def __init__(self, path: Path) -> None:
        self.worker = ""
        self._up, self._down = path, path.with_suffix(".down")
        self._position = 0
        self._unframer = Unframer()
        self._is_closed = False

    def greet(self, worker: str) -> None:
        """See ``SocketStream.greet``."""
        self.worker = worker

    def messages(self) -> Iterator[bytes]:
        """See ``SocketStream.messages``."""
        if not self._is_closed:
            piece = read_from(self._up, self._position)
            self._position += len(piece)
            yield from self._unframer.feed(piece)

    def send(self, message: bytes) -> None:
        """See ``SocketStream.send``."""
        with self._down.open("ab", buffering=0) as file:
            file.write(framed(message))

    def close(self) -> None:
        """Read it no more."""
        self._is_closed = True
