"""The driver's end of one worker's connection: a socket, or a pair of growing files."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from beam_spark_runner.backchannel.transport import read_from
from beam_spark_runner.core.framing import MAX_FRAME_BYTES, Unframer, framed

_PIECE_BYTES = 1 << 16
_MAX_BYTES_OF_A_STRANGER = 1 << 10
_PATIENCE_S = 10.0  # with a connection that does not identify its worker
_SEND_TIMEOUT_S = 1.0


class SocketStream:
    """The connection of a worker, by socket. ``worker`` is empty until it has been identified."""

    def __init__(self, connected: socket.socket) -> None:
        self.worker = ""
        self.socket = connected
        self.socket.settimeout(_SEND_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unframer = Unframer(_MAX_BYTES_OF_A_STRANGER)
        self._began = time.monotonic()
        self._sending = threading.Lock()

    def greet(self, worker: str) -> None:
        """Set the worker's id, once it has been authenticated; larger messages are allowed then."""
        self.worker = worker
        self._unframer.most_bytes = MAX_FRAME_BYTES

    def is_overdue(self) -> bool:
        """Whether the worker has not identified itself in time."""
        return not self.worker and time.monotonic() - self._began > _PATIENCE_S

    def messages(self) -> Iterator[bytes]:
        """Read once, and yield the messages that are complete now.

        Raises:
            OSError: The connection has ended, or is broken.
            FrameTooLongError: The data is not a stream of messages.
        """
        piece = self.socket.recv(_PIECE_BYTES)
        if not piece:
            raise ConnectionResetError("the worker has closed it")
        yield from self._unframer.feed(piece)

    def send(self, message: bytes) -> None:
        """Send a message. Threads: any.

        Raises:
            OSError: The connection is broken, or the worker does not read.
        """
        with self._sending:
            self.socket.sendall(framed(message))

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


class FileStream:
    """The connection of a worker, by files: one that it writes, and one that is written for it."""

    def __init__(self, path: Path) -> None:
        self.worker = ""
        self._up, self._down = path, path.with_suffix(".down")
        self._position = 0
        self._unframer = Unframer()
        self._is_closed = False
        self._sending = threading.Lock()

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
        with self._sending, self._down.open("ab", buffering=0) as file:
            file.write(framed(message))

    def close(self) -> None:
        """Stop reading the file."""
        self._is_closed = True
