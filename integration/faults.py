"""Processes that die, or stand still, at a chosen event and not at a chosen time.

Steps of a pipeline report what their task has come to (``Watched``), and wait there if they are
to. A script in the test's process waits for that, kills, and lets go (``Director``). Where one
death is all that is wanted, a step can bring it about alone (``strikes``).

The tasks must run on this machine: on ``integration.cluster`` or ``local-cluster[…]``. A module
that executors import by its name.
"""

import contextlib
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

from integration.strikes import Event, beside_this_thread, executor_of_this_worker, kill
from integration.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TIMEOUT_S = 120.0
_POLL_S = 0.01


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
            wait_until(lambda: any(gate.exists() for gate in gates), f"{event} of {self._task}")


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
        wait_until(lambda: len(self.arrivals(event)) >= count, f"{count} attempts at {event.value}")
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
        """Run the script while the pipeline runs. What it raises is raised at the end."""
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
    wait_until(
        lambda: director.newest() > before and len(director.copies(tasks)) == tasks,
        "blocks of all partitions",
    )


def leave_zombies(director: Director, tasks: int) -> None:
    """Have blocks stored twice, by an attempt at a Spark stage and by one that replaces it.

    All tasks of a Spark job's last stage wait at ``Event.RESULT``. One executor dies. Its tasks
    start again and miss what it had written for them, so that Spark begins the stage again,
    while the tasks on the other executor continue: both their attempts end well, and both count
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
    wait_until(lambda: director.newest() > before, "a block")
    kill_one()


def partition_of_this_task() -> int:
    """Return the number of the partition that this Python worker processes."""
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("this is no Python worker of Spark")
    return int(context.partitionId())
