"""The driver's end of the backchannel: one port, or a folder, for all workers of a job."""

import contextlib
import hmac
import logging
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from google.protobuf.message import DecodeError

from beam_spark_runner._generated.backchannel_pb2 import DriverFrame, WorkerFrame
from beam_spark_runner.backchannel.message_counts import MessageCounts
from beam_spark_runner.backchannel.streams import FileStream, SocketStream
from beam_spark_runner.backchannel.transport import FOLDER, LOOK_EVERY_S, Route
from beam_spark_runner.core.framing import FrameTooLongError

_LOGGER = logging.getLogger(__name__)
_LOOK_AT_THE_END_EVERY_S = 0.02
_UNHEARD_S = 1.0
_CALLBACKS_S = 5.0
"""How long the end of a job waits for workers that have not connected yet, and for callbacks."""

Take = Callable[[str, WorkerFrame], None]


class BackchannelServer:
    """Receives the messages of a job's workers, and notifies them of accepted attempts.

    Threads: any may call; ``take`` is called in its own thread.
    """

    def __init__(
        self,
        job_id: str,
        take: Take,
        *,
        listen: tuple[str, int] | None = None,
        advertise: str = "",
        folder: Path | None = None,
        grace_s: float = 0.0,
    ) -> None:
        """Open the server. If it cannot listen, this is logged, and only files are used.

        Args:
            job_id: The id of the job.
            take: Called with each frame and the id of its worker.
            listen: The address to listen at; port 0: any free port. None: do not listen.
            advertise: The host name under which executors reach this host.
            folder: A folder of this job that driver and workers share.
            grace_s: How long ``settle`` waits first, for messages that reach workers late.
        """
        self._take = take
        self._grace_s = grace_s
        self._folder = folder
        self._lock = threading.Condition()
        self._deliveries = MessageCounts()
        self._ways: dict[str, SocketStream | FileStream] = {}
        self._attempts: dict[str, list[int]] = {}  # accepted attempts of workers not yet connected
        self._await_end: set[str] = set()  # workers
        self._notified_of_end: set[str] = set()
        self._job_has_ended = False
        self._calls: set[SocketStream] = set()
        self._files: dict[Path, FileStream] = {}
        self._selector = selectors.DefaultSelector()
        self._listener: socket.socket | None = None
        self._is_closed = False
        self._look_every_s = LOOK_EVERY_S
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ, lambda: self._woken.recv(1))
        address = None if listen is None else self._listen(listen, advertise)
        if folder is not None:
            (folder / FOLDER).mkdir()
        self.route = Route(
            job_id=job_id,
            token=secrets.token_hex(16),
            address=address,
            folder=None if folder is None else str(folder),
        )
        self._thread: threading.Thread | None = None
        if address is not None or folder is not None:
            self._thread = threading.Thread(
                target=self._serve, name=f"beam-backchannel-{job_id}", daemon=True
            )
            self._thread.start()

    def _listen(self, at: tuple[str, int], advertise: str) -> tuple[str, int] | None:
        try:
            host, port = at[0].strip("[]"), at[1]
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._listener = socket.create_server((host, port), family=family, backlog=128)
        except OSError as error:
            _LOGGER.warning(
                "cannot listen at %s:%d for workers' messages (log lines, metrics while running): "
                "%s",
                *at,
                error,
            )
            return None
        self._selector.register(self._listener, selectors.EVENT_READ, self._on_call)
        return advertise.strip("[]"), self._listener.getsockname()[1]

    def expect(self, worker: str, messages_sent: int) -> None:
        """Have ``settle`` wait for a number of messages of a worker; see ``MessageCounts``."""
        with self._lock:
            self._deliveries.expect(worker, messages_sent)

    def accept(self, worker: str, attempts: Iterable[int]) -> None:
        """Notify a worker that the output of its attempts is accepted: their callbacks may run."""
        with self._lock:
            accepted = list(attempts)
            for attempt in accepted:
                self._deliveries.accepted(attempt, worker)
            stream = self._ways.get(worker)
            if stream is None:
                self._attempts.setdefault(worker, []).extend(accepted)
        if stream is not None:
            self._send(worker, stream, DriverFrame(accepted=accepted))

    def ask(self, question: DriverFrame) -> frozenset[str]:
        """Ask all workers for stacks or memory profiles, which come as ``WorkerFrame.stacks``.

        Args:
            question: With the number of the request, not 0.

        Returns:
            The ids of the workers that were asked: those that have sent something so far.
        """
        with self._lock:
            asked = dict(self._ways)
        for worker, stream in asked.items():
            self._send(worker, stream, question)
        return frozenset(asked) - self.gone()

    def gone(self) -> frozenset[str]:
        """Return the ids of the workers whose connections have ended."""
        with self._lock:
            return self._deliveries.gone_workers()

    def settle(self) -> bool:
        """Wait a short time for messages in flight; return False if some have not arrived."""
        time.sleep(self._grace_s)
        self._look_every_s = _LOOK_AT_THE_END_EVERY_S
        self._wake_up()
        began = time.monotonic()
        with self._lock:
            while not self._deliveries.are_complete():
                patience_s = _CALLBACKS_S
                missing = self._deliveries.unheard()
                if missing and not self._deliveries.awaited_callbacks():
                    patience_s = _UNHEARD_S
                left_s = began + patience_s - time.monotonic()
                if left_s <= 0 or self._thread is None:
                    return False
                self._lock.wait(left_s)
            return True

    def end_job(self, timeout_s: float) -> frozenset[str]:
        """Have workers tear down their DoFns of the job, and wait for that.

        Returns:
            The ids of workers that have not done so in time.
        """
        with self._lock:
            self._job_has_ended = True
        self._send_end()
        self._look_every_s = _LOOK_AT_THE_END_EVERY_S
        self._wake_up()
        with self._lock:
            self._lock.wait_for(
                lambda: self._is_closed or not self._deliveries.tearing_down(), timeout_s
            )
            return self._deliveries.tearing_down()

    def _send_end(self) -> None:
        """If the job has ended, report it to workers that wait for it and do not know yet."""
        with self._lock:
            if not self._job_has_ended:
                return
            workers = self._await_end - self._notified_of_end
            self._notified_of_end |= workers
            for worker in workers:
                self._deliveries.ends(worker)
        for worker in workers:
            self._send(worker, self._ways[worker], DriverFrame(job_ended=True))

    def close(self) -> None:
        """Stop listening. The port is free, and all streams have ended, on return."""
        self._is_closed = True
        self._wake_up()
        if self._thread is not None:
            self._thread.join()
        self._selector.close()
        for stream in self._calls:
            stream.close()
        for resource in (self._listener, self._wake, self._woken):
            if resource is not None:
                resource.close()

    def _wake_up(self) -> None:
        with contextlib.suppress(OSError):  # the buffer is full, so that the thread wakes up
            self._wake.send(b".")

    def _serve(self) -> None:
        looked_at = 0.0
        while not self._is_closed:
            wait_s = None
            if self._folder is not None:
                wait_s = max(looked_at + self._look_every_s - time.monotonic(), 0.0)
            for key, _ in self._selector.select(wait_s):
                key.data()
            if self._folder is not None and time.monotonic() >= looked_at + self._look_every_s:
                self._look_at_files(self._folder)
                looked_at = time.monotonic()

    def _on_call(self) -> None:
        assert self._listener is not None
        for stranger in [call for call in self._calls if call.is_overdue()]:
            self._hang_up(stranger)
        try:
            connected, _ = self._listener.accept()
        except OSError:  # the worker has disconnected already
            return
        stream = SocketStream(connected)
        self._calls.add(stream)
        self._selector.register(connected, selectors.EVENT_READ, lambda: self._read(stream))

    def _look_at_files(self, folder: Path) -> None:
        for path in (folder / FOLDER).glob("*.up"):
            if path not in self._files:
                self._files[path] = FileStream(path)
            self._read(self._files[path])

    def _read(self, stream: SocketStream | FileStream) -> None:
        try:
            for message in stream.messages():
                self._on_frame(stream, WorkerFrame.FromString(message))
        except OSError as error:
            _LOGGER.debug("the stream of %s has ended: %s", stream.worker or "a stranger", error)
            self._hang_up(stream)
        except (FrameTooLongError, DecodeError) as error:
            # Other programs may connect and send anything.
            level = logging.WARNING if stream.worker else logging.DEBUG
            name = stream.worker or "a stranger"
            _LOGGER.log(
                level,
                "further messages of %s are ignored, because one was not valid: %s",
                name,
                error,
            )
            self._hang_up(stream)

    def _on_frame(self, stream: SocketStream | FileStream, frame: WorkerFrame) -> None:
        worker = stream.worker
        if worker:
            try:
                self._take(worker, frame)
            except Exception:  # later messages of the worker, and its callbacks, are still handled
                _LOGGER.exception("a message of %s cannot be used", worker)
            with self._lock:
                self._deliveries.arrived(worker, frame.messages_sent)
                self._deliveries.finalized(frame.finalized)
                if frame.has_torn_down:
                    self._deliveries.has_torn_down(worker)
                if frame.awaits_end:
                    self._await_end.add(worker)
                self._lock.notify_all()
            self._send_end()
            return
        token = frame.token.encode(errors="surrogatepass")
        if not frame.worker or not hmac.compare_digest(token, self.route.token.encode()):
            raise ConnectionRefusedError("it does not know the token")
        stream.greet(frame.worker)
        with self._lock:
            self._deliveries.arrived(frame.worker, 0)
            self._ways[frame.worker] = stream
            attempts = self._attempts.pop(frame.worker, [])
        if attempts:
            self._send(frame.worker, stream, DriverFrame(accepted=attempts))

    def _send(self, worker: str, stream: SocketStream | FileStream, frame: DriverFrame) -> None:
        try:
            stream.send(frame.SerializeToString())
        except OSError as error:
            _LOGGER.debug("%s cannot be reached: %s", worker, error)
            self._lose(worker)

    def _hang_up(self, stream: SocketStream | FileStream) -> None:
        if isinstance(stream, SocketStream):
            self._selector.unregister(stream.socket)
            self._calls.remove(stream)
        stream.close()
        if stream.worker:
            self._lose(stream.worker)

    def _lose(self, worker: str) -> None:
        with self._lock:
            self._deliveries.gone(worker)
            self._lock.notify_all()
