"""Finish records: small files by which tasks of a bounded pipeline say that they have finished.

They are in a folder of their Spark job, next to the rows that the tasks have made. A record is
created once these rows are durable, and has the report of the task. Its name says which partition
of how many has finished, so that a later start knows how many tasks the Spark job had.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

_RECORD = re.compile(
    r"p(?P<partition>\d{5,})of(?P<partitions>\d{5,})-(?P<attempt>[0-9a-f]{16})\.done"
)


class Finish(NamedTuple):
    """An attempt at a task that has finished.

    Attributes:
        partition: The partition of the task.
        partitions: The number of tasks of its Spark job.
        attempt: The id of the attempt.
    """

    partition: int
    partitions: int
    attempt: int

    @property
    def record_name(self) -> str:
        """The name of the finish record."""
        return f"p{self.partition:05d}of{self.partitions:05d}-{self.attempt:016x}.done"

    @property
    def rows_name(self) -> str:
        """The name of the file with the rows that the attempt has made."""
        return rows_name(self.partition, self.attempt)


def rows_name(partition: int, attempt: int) -> str:
    """Return the name of the file with the rows of an attempt at a task."""
    return f"p{partition:05d}-{attempt:016x}.rows"


def finish_in(name: str) -> Finish | None:
    """Return the attempt whose finish record has a name; None: it is the name of another file."""
    match = _RECORD.fullmatch(name)
    if match is None:
        return None
    return Finish(int(match["partition"]), int(match["partitions"]), int(match["attempt"], 16))


def encode_record(report: bytes) -> bytes:
    """Return the content of a finish record: a digest, and the serialised report of the task."""
    return _digest(report) + report


def decode_record(content: bytes) -> bytes | None:
    """Return the serialised report in a finish record; None: it is damaged."""
    digest, report = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    return report if digest == _digest(report) else None


_DIGEST_BYTES = 16


def _digest(report: bytes) -> bytes:
    return hashlib.blake2b(report, digest_size=_DIGEST_BYTES).digest()


def finished_partitions(names: Iterable[str]) -> Mapping[int, Mapping[int, list[Finish]]]:
    """Return the attempts that may be kept, by the number of tasks of their job, and by partition.

    Starts of a driver may have run a Spark job with different numbers of tasks.

    Args:
        names: The names of the files of a Spark job.

    Returns:
        For each partition, attempts in the order of their ids. Nobody has read the rows of either
        before the commit, so that it does not matter which is kept, as long as all starts choose
        the same.
    """
    found: dict[int, dict[int, list[Finish]]] = {}
    for finish in sorted(finish for name in names if (finish := finish_in(name)) is not None):
        if finish.partition < finish.partitions:
            by_partition = found.setdefault(finish.partitions, {})
            by_partition.setdefault(finish.partition, []).append(finish)
    return found


def tasks_before(found: Mapping[int, Mapping[int, object]]) -> int | None:
    """Return the number of tasks of which most partitions have finished. None: there are none.

    Args:
        found: See ``finished_partitions``.
    """
    return max(found, key=lambda tasks: (len(found[tasks]), tasks), default=None)


def keeps_tasks(before: int, kept: int, slots: int) -> bool:
    """Whether a Spark job runs with as many tasks as before, so that finished ones are kept.

    Partitions of another number of tasks are other rows.

    Args:
        before: The number of tasks.
        kept: How many of them are finished.
        slots: How many tasks would run at a time, if there were enough.
    """
    return kept > 0 and (2 * kept >= before or slots <= 2 * before)


def all_have_finished(found: Mapping[int, Mapping[int, object]]) -> bool:
    """Whether all tasks of a Spark job have finished.

    Args:
        found: See ``finished_partitions``.
    """
    return any(len(by_partition) == tasks for tasks, by_partition in found.items())
