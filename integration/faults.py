"""Processes that die, or stand still, at a chosen event and not at a chosen time.

Steps of a pipeline report what their task has come to (``Watched``), and wait there if they are
to. A script in the test's process waits for that, kills, and lets go (``Director``). Where one
death is all that is wanted, a step can bring it about alone (``Strikes``).

The tasks must run on this machine: on ``integration.cluster`` or ``local-cluster[…]``. A module
that executors import by its name.
"""

import contextlib
import enum
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apache_beam as beam
from pyspark import TaskContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"
_TIMEOUT_S = 120.0
_POLL_S = 0.01


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


@dataclass(frozen=True)
class Arrival:
    """A task attempt has come to an event."""

    event: Event
    partition: int
    executor: int  # process id
    attempt: str


class Watched(beam.DoFn):  # type: ignore[misc]
    """Passes elements on. Reports the events of its task, and waits at some for the director.

    Args:
        folder: of the director.
        gates: events at which every attempt waits; not ``REPORT``.
    """

    def __init__(self, folder: str, gates: Iterable[Event] = ()) -> None:
        super().__init__()
        self._folder = Path(folder)
        self._gates = frozenset(gates)

    def start_bundle(self) -> None:
        self._attempt = uuid.uuid4().hex
        self._task = f"{partition_of_this_task()}.{executor_of_this_worker()}"
        self._has_read = False
        self._meet(Event.START)

    def process(self, element: Any) -> Iterator[Any]:
        yield element
        if not self._has_read:
            self._has_read = True
            self._meet(Event.READ)

    def finish_bundle(self) -> None:
        self._meet(Event.RESULT)
        # The worker may have begun with another task by then.
        reported = self._folder / f"{Event.REPORT.value}.{self._task}.{self._attempt}"
        beside_this_thread(reported.touch)

    def _meet(self, event: Event) -> None:
        (self._folder / f"{event.value}.{self._task}.{self._attempt}").touch()
        if event in self._gates:
            gates = (self._folder / f"go.{self._attempt}", self._folder / "go.all")
            _wait_until(lambda: any(gate.exists() for gate in gates), f"{event} of {self._task}")


class Strikes(beam.DoFn):  # type: ignore[misc]
    """Passes elements on. The first task that comes to the event kills a process, by ``kill -9``.

    Args:
        marker: a path; where the file exists, the deed is done.
        event: at which to strike.
        victim: what dies.
        nth: element of the task, for ``Event.READ``.
    """

    def __init__(self, marker: str, event: Event, victim: Victim, nth: int = 1) -> None:
        super().__init__()
        self._marker = marker
        self._event = event
        self._victim = victim
        self._nth = nth

    def start_bundle(self) -> None:
        self._seen = 0
        self._meet(Event.START)

    def process(self, element: Any) -> Iterator[Any]:
        self._seen += 1
        if self._seen == self._nth:
            self._meet(Event.READ)
        yield element

    def finish_bundle(self) -> None:
        self._meet(Event.RESULT)
        if self._event is Event.REPORT:
            beside_this_thread(lambda: self._meet(Event.REPORT))

    def _meet(self, event: Event) -> None:
        if event is self._event and claim(self._marker):
            victim = self._choose()
            Path(self._marker).write_text(str(victim))
            kill(victim)

    def _choose(self) -> int:
        if self._victim is Victim.WORKER:
            return os.getpid()
        own = executor_of_this_worker()
        if self._victim is Victim.OTHER_EXECUTOR:
            return next((pid for pid in executors_like(own) if pid != own), own)
        return own


class Director:
    """Has the script of one run. Used with a ``Watched`` step that has the same folder.

    Args:
        folder: empty.
        session: of the application, to ask Spark's driver what it knows; None: there is none.
    """

    def __init__(self, folder: Path, session: "SparkSession | None" = None) -> None:
        self._folder = folder
        self._session = session

    def arrivals(self, event: Event) -> list[Arrival]:
        """Return the attempts that have come to ``event``."""
        found = []
        for path in self._folder.glob(f"{event.value}.*"):
            _, partition, executor, attempt = path.name.split(".")
            found.append(Arrival(event, int(partition), int(executor), attempt))
        return found

    def wait_for(self, event: Event, count: int) -> list[Arrival]:
        """Wait until as many attempts have come to ``event``."""
        _wait_until(
            lambda: len(self.arrivals(event)) >= count, f"{count} attempts at {event.value}"
        )
        return self.arrivals(event)

    def go(self, arrival: Arrival) -> None:
        """Let one attempt pass all its gates."""
        (self._folder / f"go.{arrival.attempt}").touch()

    def go_all(self) -> None:
        """Let all attempts pass all gates, those to come, too."""
        (self._folder / "go.all").touch()

    @contextlib.contextmanager
    def stopped_driver(self) -> Iterator[None]:
        """Keep the JVM of Spark's driver from doing anything (SIGSTOP)."""
        assert self._session is not None
        java = self._session.sparkContext._jvm
        assert java is not None
        jvm = int(java.java.lang.ProcessHandle.current().pid())
        os.kill(jvm, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(jvm, signal.SIGCONT)

    def newest(self) -> int:
        """Return the number that Spark gave the newest kept rows; -1: there are none."""
        return max((frame.id() for frame in self._kept()), default=-1)

    def copies(self, partitions: int) -> dict[int, int]:
        """Return partition -> number of executors that have its block, for the newest kept rows.

        Args:
            partitions: that the kept rows have. Those with other numbers are left out.
        """
        known = {frame.id(): frame for frame in self._kept() if frame.numPartitions() == partitions}
        found: dict[int, int] = {}
        if known:
            blocks = known[max(known)].partitions().get().iterator()
            while blocks.hasNext():
                block = blocks.next()
                found[int(block.blockName().rpartition("_")[2])] = block.executors().size()
        return found

    def _kept(self) -> list[Any]:
        assert self._session is not None
        frames = self._session.sparkContext._jsc.sc().statusStore().rddList(True)
        return [frames.apply(place) for place in range(frames.size())]

    @contextlib.contextmanager
    def directing(self, script: "Callable[[Director], None]") -> Iterator[None]:
        """Run the script beside the pipeline. What it raises is raised at the end."""
        raised: list[BaseException] = []

        def play() -> None:
            try:
                script(self)
            except BaseException as error:
                raised.append(error)
            finally:
                self.go_all()

        thread = threading.Thread(target=play, name="director", daemon=True)
        thread.start()
        try:
            yield
        finally:
            thread.join(_TIMEOUT_S)
            if raised:
                raise raised[0]
            if thread.is_alive():
                raise TimeoutError("the script has not come to its end")


def keep_two_copies(director: Director, tasks: int) -> None:
    """Have Spark keep every block of materialised rows twice, by two attempts at one task.

    All tasks of a Spark job's last stage wait at ``Event.RESULT``, so that Spark starts a second
    attempt at each on the other host; then all of them end. Spark's driver stands still for so
    long: else it would kill the slower attempt as soon as it hears of the faster one's end, and
    an executor ends a task only when the driver has taken note of its block.

    Args:
        director: of a step in the last stage, gated at ``Event.RESULT``.
        tasks: of that stage: half of what the cluster has slots for.
    """
    before = director.newest()
    both = director.wait_for(Event.RESULT, 2 * tasks)
    by_partition: dict[int, set[int]] = {}
    for arrival in both:
        by_partition.setdefault(arrival.partition, set()).add(arrival.executor)
    if sorted(map(len, by_partition.values())) != [2] * tasks:
        raise RuntimeError(f"not every task has an attempt on both executors: {both}")
    with director.stopped_driver():
        director.go_all()
        director.wait_for(Event.REPORT, 2 * tasks)
        time.sleep(0.5)  # from the Python workers into the executors' memory
    _wait_until(
        lambda: director.newest() > before and len(director.copies(tasks)) == tasks,
        "blocks of all partitions",
    )


def leave_zombies(director: Director, tasks: int) -> None:
    """Have blocks stored twice, by an attempt at a Spark stage and by one that replaces it.

    All tasks of a Spark job's last stage wait at ``Event.RESULT``. One executor dies. Its tasks
    start again and miss what it had written for them, so that Spark begins the stage anew,
    while the tasks on the other executor go on: both their attempts end well, and both count
    for Spark as the block. One task is held until Spark's driver knows of two copies.

    Args:
        director: of a step in the last stage, gated at ``Event.RESULT``.
        tasks: of that stage: as many as the cluster of two executors has slots.
    """
    first = director.wait_for(Event.RESULT, tasks)
    killed = min(arrival.executor for arrival in first)
    gone = {arrival.partition for arrival in first if arrival.executor == killed}
    left = [arrival for arrival in first if arrival.executor != killed]
    if not gone or not left:
        raise RuntimeError(f"all tasks ran on one executor: {first}")
    kill(killed)
    held: Arrival | None = None
    passed = {arrival.attempt for arrival in first}
    deadline = time.monotonic() + _TIMEOUT_S
    while max(director.copies(tasks).values(), default=0) < 2:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no block has two copies: {director.copies(tasks)}")
        for again in director.arrivals(Event.RESULT):
            if again.attempt in passed or again == held:
                continue
            if held is None and again.partition in gone:
                held = again
                continue
            passed.add(again.attempt)
            director.go(again)
            for zombie in left:
                if zombie.partition == again.partition:
                    director.go(zombie)
        time.sleep(_POLL_S)


def kill_when_kept(director: Director, kill_one: Callable[[], object]) -> None:
    """Kill an executor when a block is stored, and the driver has not accepted the rows yet.

    Args:
        director: knows what is stored.
        kill_one: kills.
    """
    before = director.newest()
    _wait_until(lambda: director.newest() > before, "a block")
    kill_one()


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


def partition_of_this_task() -> int:
    """Return the number of the partition that this Python worker processes."""
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("this is no Python worker of Spark")
    return int(context.partitionId())


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


def _wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(_POLL_S)
