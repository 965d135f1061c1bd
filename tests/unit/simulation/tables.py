"""The table of the simulated pipeline: it skips epochs that it has, as one of Delta does."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from beam_spark_runner.driving.tables import NoTables
from beam_spark_runner.engine.program import ShardLocations
from beam_spark_runner.recovery.begun_writes import DELTA, TargetState
from beam_spark_runner.recovery.epoch_writes import EpochWrite
from beam_spark_runner.recovery.manifest import Manifest
from tests.unit.simulation.storage import Files, KilledError

STEP = "Write"


@dataclass
class Table:
    """The table.

    Attributes:
        files: all that is stored.
        commits: what it has, in order.
        most: the newest epoch of each writer.
    """

    files: Files
    commits: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    most: dict[str, int] = field(default_factory=dict)

    def add(self, write: EpochWrite) -> None:
        """Add the rows of an epoch, unless it has that or a later one."""
        if write.epoch <= self.most.get(write.writer, 0):
            return
        for name in write.files:
            assert name in self.files.content, "rows were deleted before they were written"
        self.most[write.writer] = write.epoch
        self.commits.append((write.epoch, write.files))

    def check(self, chain: Sequence[Manifest]) -> None:
        """It has the rows of each epoch once, in their order."""
        committed = [
            (write.epoch, write.files)
            for manifest in chain
            for write in manifest.unwritten
            if write.epoch == manifest.epoch
        ]
        assert self.commits == committed


class Writer(Protocol):
    """The driver that writes."""

    doing: str

    def pause(self) -> None:
        """Let the world decide what happens before this driver goes on."""
        ...


class SimulatedTables(NoTables):
    """See ``driving.tables``.

    Args:
        table: that all drivers share.
        driver: that writes.
        is_dead: whether the process of the driver has ended.
    """

    def __init__(self, table: Table, driver: Writer, is_dead: Callable[[], bool]) -> None:
        super().__init__()
        self._table, self._driver, self._is_dead = table, driver, is_dead

    def to_append(self, step: str) -> "SimulatedTables":
        assert step == STEP
        return self

    def state(self) -> TargetState:
        return TargetState(exists=None, kind=DELTA)

    def is_written(self, write: EpochWrite) -> bool:
        return False

    def append(self, write: EpochWrite, places: ShardLocations) -> None:
        self._driver.doing = "write"
        self._pause()
        self._table.add(write)
        self._pause()

    def reason_for(self, error: BaseException) -> str:
        return str(error)

    def close(self) -> None:
        pass

    def _pause(self) -> None:
        self._driver.pause()
        if self._is_dead():
            raise KilledError
