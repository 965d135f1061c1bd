"""Rows of a simulated batch pipeline, what an attempt at a task has made, and where that is."""

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

import numpy as np

from beam_spark_runner.driving.output_rows import ClusterRows
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.scheduling.attempts import Attempts, Report

_VALUE = struct.Struct("<qqi")


class Row(NamedTuple):
    """An element on its way to a stage or a side input.

    Attributes:
        dest: where it goes.
        route: decides which task gets it; of a grouping, the key.
        id: says which element it is: the same in each run of the pipeline.
        token: says which attempts have made it: a random stage makes another one each time.
        start: of a restriction: the first position that is left.
    """

    dest: int
    route: int
    id: int
    token: int
    start: int = 0


class Mark(NamedTuple):
    """See ``engine.rows.marks``."""

    run: int
    attempt: int
    failed: bool = False
    left_residuals: bool = False


def coded(rows: Iterable[Row]) -> bytes:
    """Encode rows as the driver knows them."""
    by_dest: dict[int, list[Row]] = {}
    for row in rows:
        by_dest.setdefault(row.dest, []).append(row)
    return schema.coded_batches(
        schema.batch_of(
            dest,
            np.array([row.route for row in some], np.int64),
            None,
            None,
            [_VALUE.pack(row.id, row.token, row.start) for row in some],
        )
        for dest, some in by_dest.items()
    )


def decoded(data: bytes) -> list[Row]:
    """Decode rows; the inverse of ``coded``. The elements that the driver makes are empty."""
    found = []
    for batch in schema.decoded_batches(data):
        block = schema.block_of(batch)
        for dest, route, value in zip(block.dests, block.routes, block.values, strict=True):
            fields = _VALUE.unpack(value) if value else (0, 0, 0)
            found.append(Row(int(dest), int(route), *fields))
    return found


Processed = tuple[int, int, int]
"""Stage, element, and position in its restriction: what user code has seen at a time."""


@dataclass
class Work:
    """What has happened in an attempt at a task.

    Attributes:
        rows: all that it has emitted.
        emitted: those of them that are new.
        consumed: rows of the input that it has processed.
        processed: what user code has seen, in this order.
        views: of each side input that it has read: the destination, and the rows.
    """

    rows: list[Row] = field(default_factory=list)
    emitted: list[Row] = field(default_factory=list)
    consumed: list[Row] = field(default_factory=list)
    processed: list[Processed] = field(default_factory=list)
    views: list[tuple[int, Sequence[Row]]] = field(default_factory=list)


@dataclass(frozen=True)
class Made:
    """What an attempt at a task has made.

    Attributes:
        run: the number of its job.
        work: what has happened in it.
        mark: that it has sent along with its rows.
        report: its own.
    """

    run: int
    work: Work
    mark: Mark
    report: Report


@dataclass
class Host:
    """A machine. ``boots``: how often it was lost, with all that was stored there."""

    boots: int = 0


@dataclass
class Stored:
    """The output of an attempt at a task.

    Attributes:
        rows: all of it.
        marks: see ``Mark``.
        reports: its own, and those that it has brought along.
        host: that has it. None: the driver has it, or it is in shared storage.
        is_lost: it is gone, whatever has become of the host.
    """

    rows: Sequence[Row]
    marks: Sequence[Mark] = ()
    reports: Sequence[Report] = ()
    host: Host | None = None
    is_lost: bool = False

    def __post_init__(self) -> None:
        self._boots = 0 if self.host is None else self.host.boots

    @property
    def is_there(self) -> bool:
        """Whether it can be read."""
        return not self.is_lost and (self.host is None or self.host.boots == self._boots)


class ClusterError(Exception):
    """The cluster has given a job up.

    Attributes:
        lost: whether since machines went away.
        levels_after: see ``Failures``.
        missing: the number of the job whose rows are not there any more.
    """

    def __init__(
        self,
        reason: str,
        *,
        lost: bool,
        levels_after: int | None = None,
        missing: int | None = None,
    ) -> None:
        super().__init__(reason)
        self.lost, self.levels_after, self.missing = lost, levels_after, missing


@dataclass(frozen=True)
class Partition:
    """What one task of a later job reads.

    Attributes:
        versions: all that is stored: of several attempts at one task, if it ran again.
        dests: of the rows; None: all.
    """

    versions: Sequence[Stored]
    dests: frozenset[int] | None = None

    def read(self, random: Random) -> Stored:
        """Return one of the versions.

        Raises:
            ClusterError: none is left.
        """
        there = [each for each in self.versions if each.is_there]
        if not there:
            (mark,) = self.versions[0].marks
            raise ClusterError("rows are not found", lost=True, missing=mark.run)
        found = random.choice(there)
        if self.dests is None:
            return found
        return Stored([row for row in found.rows if row.dest in self.dests], found.marks)


@dataclass(frozen=True)
class StoredRows:
    """See ``ClusterRows``. ``read``: reads a partition, which takes a while."""

    partitions: Sequence[Partition]
    read: Callable[[Partition], Stored]

    def rows_for(self, dests: Iterable[int]) -> "StoredRows":
        wanted = frozenset(map(int, dests))
        return StoredRows(
            [
                Partition(each.versions, wanted if each.dests is None else each.dests & wanted)
                for each in self.partitions
            ],
            self.read,
        )

    def united_with(self, other: ClusterRows) -> "StoredRows":
        return StoredRows([*self.partitions, *partitions_of(other)], self.read)

    def attempts(self) -> dict[int, Attempts]:
        return consumed(mark for each in self.partitions for mark in self.read(each).marks)


def partitions_of(rows: ClusterRows) -> Sequence[Partition]:
    """Return the partitions of rows of the simulated cluster."""
    assert isinstance(rows, StoredRows)
    return rows.partitions


def consumed(marks: Iterable[Mark]) -> dict[int, Attempts]:
    """Return which attempts have made rows, by run, as marks say."""
    found: dict[int, list[int]] = {}
    for mark in marks:
        found.setdefault(mark.run, []).append(mark.attempt)
    return {run: Attempts.of(attempts) for run, attempts in found.items()}
