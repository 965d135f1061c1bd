"""Connections from a Python worker to the driver of a job: by a socket, or by files.

Results never depend on these messages. If a connection cannot be opened, or breaks, only
messages are lost.
"""

import contextlib
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from google.protobuf.message import DecodeError

from beam_spark_runner._generated.backchannel_pb2 import DriverFrame, WorkerFrame
from beam_spark_runner.core.framing import FrameTooLongError, Unframer, framed

CONNECT_TIMEOUT_S = 5.0
LOOK_EVERY_S = 0.5
"""The interval at which both sides look for new content of files."""
FOLDER = "backchannel"
_PIECE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where the driver of a job receives messages. It is sent to executors.

    Attributes:
        job_id: The id of the job.
        token: A secret by which workers authenticate.
        address: Host and port of the driver, as executors see it. None: it does not listen.
        folder: A folder that driver and workers share, for workers that cannot reach the driver.
    """

    job_id: str
    token: str = field(default="", repr=False)
    address: tuple[str, int] | None = None
    folder: str | None = None


class DriverLink(Protocol):
    """One worker's connection to the driver. Threads: one sends, one receives."""

    def send(self, message: bytes) -> None:
        """Send a message.

        Raises:
            OSError: The connection is broken.
        """
        ...

    def receive(self) -> list[DriverFrame] | None:
        """Wait for messages from the driver. None: there will be no more, or one is not valid."""
        ...

    def close(self) -> None:
        """Close the connection. A thread that waits in ``receive`` returns from it."""
        ...


def connect(route: Route, worker: str) -> DriverLink | None:
    """Connect by socket or else by files, and send token and worker id; None: neither works."""
    link: DriverLink | None = None
    if route.address is not None:
        try:
            link = SocketLink(route.address)
        except OSError as error:
            # Not ``logging``, whose lines are sent over this connection.
            host, port = route.address
            print(
                f"the driver does not answer at {host}:{port} ({error}): log lines of {worker} are "
                "sent through files in --temp_location, if that is a mounted folder, or only "
                "printed here",
                file=sys.stderr,
            )
    if link is None and route.folder is not None:
        link = FileLink(Path(route.folder), worker)
    if link is not None:
        try:
            link.send(WorkerFrame(token=route.token, worker=worker).SerializeToString())
        except OSError:
            link.close()
            return None
    return link


class SocketLink:
    """See ``DriverLink``."""

    def __init__(self, address: tuple[str, int]) -> None:
        """Connect.

        Raises:
            OSError: The address does not answer.
        """
        self._socket = socket.create_connection(address, timeout=CONNECT_TIMEOUT_S)
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._unframer = Unframer()

    def send(self, message: bytes) -> None:
        self._socket.sendall(framed(message))

    def receive(self) -> list[DriverFrame] | None:
        while True:
            try:
                piece = self._socket.recv(_PIECE_BYTES)
            except OSError:
                return None
            if not piece:
                return None
            if (messages := _frames(self._unframer, piece)) != []:
                return messages

    def close(self) -> None:
        with contextlib.suppress(OSError):  # the other end has closed it
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class FileLink:
    """See ``DriverLink``. Each direction is a file that only grows."""

    def __init__(self, folder: Path, worker: str) -> None:
        self._up = folder / FOLDER / f"{worker}.up"
        self._down = self._up.with_suffix(".down")
        self._position = 0
        self._unframer = Unframer()
        self._is_closed = False

    def send(self, message: bytes) -> None:
        # Opened and closed each time: network file systems show content to others on close.
        # The folder is not created here, because the end of the job removes it.
        with self._up.open("ab", buffering=0) as file:
            file.write(framed(message))

    def receive(self) -> list[DriverFrame] | None:
        while not self._is_closed and self._down.parent.is_dir():
            with contextlib.suppress(FileNotFoundError):  # the driver has sent nothing yet
                piece = read_from(self._down, self._position)
                self._position += len(piece)
                if (messages := _frames(self._unframer, piece)) != []:
                    return messages
            time.sleep(LOOK_EVERY_S)
        return None

    def close(self) -> None:
        self._is_closed = True


def _frames(unframer: Unframer, piece: bytes) -> list[DriverFrame] | None:
    try:
        return [DriverFrame.FromString(message) for message in unframer.feed(piece)]
    except (FrameTooLongError, DecodeError) as error:
        # Not ``logging``, whose lines are sent over this connection.
        print(f"further messages of the driver are ignored: {error}", file=sys.stderr)
        return None


def read_from(path: Path, position: int) -> bytes:
    """Return the content of a file from ``position`` to its end.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        file.seek(position)
        return file.read()
