"""Frames between workers and the driver, which anyone may send who reaches its port."""

import logging
import random
import socket
from collections.abc import Iterator
from typing import Any

from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner._generated.backchannel_pb2 import (
    DriverFrame,
    TaskProgress,
    WorkerFrame,
)
from beam_spark_runner.backchannel.driver import BackchannelServer
from beam_spark_runner.backchannel.streams import FileStream
from beam_spark_runner.backchannel.transport import Route, SocketLink
from beam_spark_runner.backchannel.worker import Backchannel
from beam_spark_runner.core.framing import FrameTooLongError, Unframer, framed
from beam_spark_runner.job.run.telemetry import LiveTasks, TaskTelemetry
from beam_spark_runner.job.watching.messages import JobMessages
from tests.fuzz import coded
from tests.fuzz.protos import Pool
from tests.fuzz.targets.base import Messages, Target

_WORKER = "worker-1"


class _Bytes(FileStream):
    """The stream of a worker that has sent these bytes."""

    def __init__(self, sent: bytes) -> None:
        self.worker = ""
        self._sent = sent
        self._framer = Unframer()

    def messages(self) -> Iterator[bytes]:
        yield from self._framer.feed(self._sent)

    def send(self, message: bytes) -> None:
        framed(message)

    def close(self) -> None: ...


class Driver(Target):
    """Frames that a worker sends, and what the driver makes of them."""

    name = "backchannel-driver"
    share = 1.0

    def __init__(self, frames: list[WorkerFrame]) -> None:
        self._frames = frames
        self._pool = Pool(frames)

    def begin(self) -> None:
        logging.disable()

    def case(self, random_: random.Random) -> bytes:
        pieces = []
        for _ in range(random_.choice((1, 1, 3))):
            frame = self._pool.mutated(random_.choice(self._frames), random_)
            pieces.append(framed(frame.SerializeToString()))
        sent = b"".join(pieces)
        return coded.mutated(sent, random_, ()) if random_.random() < 0.1 else sent

    def run(self, case: bytes) -> object:
        live = LiveTasks()
        messages = JobMessages({}, job_id="job")
        telemetry = TaskTelemetry("job", messages, live, None, None)
        defects: list[BaseException] = []

        def take(worker: str, frame: WorkerFrame) -> None:
            try:
                telemetry._receive(worker, frame)
            except Exception as error:  # which the driver only logs
                defects.append(error)

        server = BackchannelServer("job", take)
        try:
            live.note_started(1)
            hello = WorkerFrame(token=server.route.token, worker=_WORKER)
            server._read(_Bytes(framed(hello.SerializeToString()) + case))
            server.expect(_WORKER, 3)
            server.accept(_WORKER, [1, 2])
            live.deferrals()
            live.monitoring_infos()
            list(messages.log.events())
        finally:
            server.close()
            telemetry._server.close()
        if defects:
            raise defects[0]
        return None


class Strangers(Target):
    """Bytes that somebody sends who is no worker, or a driver that is none."""

    name = "backchannel-strangers"
    share = 0.5
    named = (FrameTooLongError,)

    def __init__(self) -> None:
        real: list[Any] = [
            DriverFrame(accepted=[1, 1 << 63]),
            DriverFrame(job_ended=True),
            WorkerFrame(worker=_WORKER, token="0" * 32),
        ]
        self._pool = Pool(real)
        self._real = real

    def begin(self) -> None:
        logging.disable()

    def case(self, random_: random.Random) -> bytes:
        message = self._pool.mutated(random_.choice(self._real), random_).SerializeToString()
        sent = framed(message)
        return coded.mutated(sent, random_, ()) if random_.random() < 0.5 else sent

    def run(self, case: bytes) -> object:
        server = BackchannelServer("job", lambda worker, frame: None)
        server._read(_Bytes(case))
        server.close()
        theirs, ours = socket.socketpair()
        with theirs:
            theirs.sendall(case)
        link = SocketLink.__new__(SocketLink)
        link._socket, link._unframer = ours, Unframer()
        Backchannel(Route(job_id="job"))._threads._hear(link)
        link.close()
        return None


def targets(messages: Messages) -> list[Target]:
    """Return the targets of this module."""
    entries = [
        one.SerializeToString()
        for _, each in messages.of(beam_fn_api_pb2.LogEntry.List)
        for one in each.log_entries
    ][:50]
    infos = [
        info.SerializeToString()
        for _, each in messages.of(beam_fn_api_pb2.InstructionResponse)
        for info in each.process_bundle.monitoring_infos
    ][::20]
    frames = [
        WorkerFrame(log_entries=entries[:3], messages_sent=3, left_out=7),
        WorkerFrame(log_entries=entries[3:9], finalized=[1, 2]),
        WorkerFrame(has_torn_down=True, awaits_end=True),
        WorkerFrame(
            progress=[TaskProgress(attempt=5, run=1, monitoring_infos=infos)], messages_sent=1
        ),
    ]
    return [Driver(frames), Strangers()]
