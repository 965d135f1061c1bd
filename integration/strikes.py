"""Steps that kill a process by ``kill -9``, at a chosen event and not at a chosen time.

The tasks must run on this machine. A module that executors import by its name.
"""

import contextlib
import enum
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam

_EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"


class Event(enum.Enum):
    """What a task has come to, in this order."""

    START = "start"  # it has got its first element, and processed none
    READ = "read"  # in the middle of its elements
    RESULT = "result"  # it has processed all elements; their last batch is still to be emitted
    REPORT = "report"  # all rows are emitted, its report among them; Spark may not have them yet


class Victim(enum.Enum):
    """Whose process dies."""

    OWN_EXECUTOR = "own executor"
    OTHER_EXECUTOR = "other executor"  # what tasks that start later fetch from it is gone
    WORKER = "worker"  # the Python process of the task
    DRIVER = "driver"  # the program, where ``DRIVER_PID`` in its environment names it


ON_CLUSTERS = Victim.OWN_EXECUTOR, Victim.OTHER_EXECUTOR, Victim.WORKER
DRIVER_PID = "DRIVER_PID"


class Strikes(beam.DoFn):  # type: ignore[misc]
    """Passes elements on. The first task that comes to the event kills a process, by ``kill -9``.

    Args:
        marker: a path; where the file exists, the deed is done.
        event: at which to strike.
        victim: what dies.
        nth: element of the task, for ``Event.READ``.

    Attributes:
        marker: the path.
    """

    def __init__(self, marker: str, event: enum.Enum, victim: Victim, nth: int = 1) -> None:
        super().__init__()
        self.marker = marker
        self._event = event
        self._victim = victim
        self._nth = nth

    def start_bundle(self) -> None:
        self._seen = 0
        self.meet(Event.START)

    def process(self, element: Any) -> Iterator[Any]:
        self._seen += 1
        if self._seen == self._nth:
            self.meet(Event.READ)
        yield element

    def finish_bundle(self) -> None:
        self.meet(Event.RESULT)
        if self._event is Event.REPORT:
            beside_this_thread(lambda: self.meet(Event.REPORT))

    def meet(self, event: enum.Enum) -> None:
        """Strike, if this is the event and the deed is not done."""
        if event is self._event and claim(self.marker):
            victim = self._choose()
            Path(self.marker).write_text(str(victim))
            kill(victim)

    def _choose(self) -> int:
        if self._victim is Victim.WORKER:
            return os.getpid()
        if self._victim is Victim.DRIVER:
            return int(os.environ[DRIVER_PID])
        own = executor_of_this_worker()
        if self._victim is Victim.OTHER_EXECUTOR:
            return next((pid for pid in executors_like(own) if pid != own), own)
        return own


def beside_this_thread(do: Callable[[], None]) -> None:
    """Call ``do`` when the calling thread has ended: a bundle's ends with its task's report."""
    bundle = threading.current_thread()

    def wait() -> None:
        bundle.join()
        do()

    threading.Thread(target=wait, name="after-the-report", daemon=True).start()


def claim(marker: str) -> bool:
    """Create the file. False: it exists."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def kill(pid: int) -> None:
    """``kill -9``; a process that has gone is as dead as it should be."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def executor_of_this_worker() -> int:
    """Return the process id of the executor whose Python worker this is."""
    pid = os.getpid()
    while pid > 1:
        if _EXECUTOR in _arguments_of(pid):
            return pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    raise RuntimeError("this is no executor's Python worker")


def executors_like(executor: int) -> list[int]:
    """Return the process ids of all executors of that executor's application."""
    application = _application_of(_arguments_of(executor))
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            arguments = _arguments_of(int(entry.name))
            if _EXECUTOR in arguments and _application_of(arguments) == application:
                found.append(int(entry.name))
    return sorted(found)


def _application_of(arguments: list[bytes]) -> bytes:
    return arguments[arguments.index(b"--app-id") + 1]


def _arguments_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:  # it has ended meanwhile
        return []
