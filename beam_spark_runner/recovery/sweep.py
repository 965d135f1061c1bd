"""Finds files of earlier epochs that are not needed any more: deltas, views, rows, hidden files.

The name of each file of a task has its epoch. A manifest names the deltas of its shards' chains,
its views, and the rows of tables that may not be written yet, one by one. Rows pass from one Spark
job of an epoch to the next one; no manifest names them.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.recovery.manifest import Manifest, epoch_in, fence_in

_DELTA = re.compile(
    r"(?P<lineage>[\w.-]+)-(?P<level>\d+)-(?P<partition>\d+)-(?P<epoch>\d{12})-(?P<attempt>[0-9a-f]{16})\.delta"
)
_KEYED = re.compile(
    r"(?P<lineage>[\w.-]+)-(?P<store>\d+)-(?P<partition>\d+)-(?P<epoch>\d{12})-(?P<attempt>[0-9a-f]{16})\.keyed"
)
_VIEW = re.compile(r"(?P<lineage>[\w.-]+)-(?P<epoch>\d{12})-\d+-[0-9a-f]+\.view")
_TABLE_ROWS = re.compile(r"(?P<lineage>[\w.-]+)-(?P<epoch>\d{12})-\d+-[0-9a-f]+\.table")
_HIDDEN = re.compile(r"\.(?P<name>.+)\.[0-9a-f]+")

_ROWS = re.compile(
    r"(?P<lineage>[\w.-]+)-(?P<epoch>\d{12})-(?P<fence>\d{12})-\d+-\d+-[0-9a-f]{16}\.rows"
)


def delta_name(lineage: str, level: int, partition: int, epoch: int, attempt: int) -> str:
    """Return the name of a delta's file. Those of a shard sort by their epochs."""
    return f"{lineage}-{level}-{partition}-{epoch:012d}-{attempt:016x}.delta"


def keyed_delta_name(lineage: str, store: int, partition: int, epoch: int, attempt: int) -> str:
    """Return the name of the file of a keyed delta, of the stage with a store number."""
    return f"{lineage}-{store}-{partition}-{epoch:012d}-{attempt:016x}.keyed"


def delta_version_in(name: str) -> tuple[int, int] | None:
    """Return the epoch and the attempt of a delta, by its name; None: it is no delta."""
    match = _DELTA.fullmatch(name) or _KEYED.fullmatch(name)
    return (int(match["epoch"]), int(match["attempt"], 16)) if match else None


def view_name(lineage: str, epoch: int, dest: int, unique: str) -> str:
    """Return the name of the file that a task writes with panes of a side input.

    Args:
        lineage: The lineage of the pipeline.
        epoch: The epoch in which the panes have fired.
        dest: The destination of the side input.
        unique: Hexadecimal digits that no other attempt has.
    """
    return f"{lineage}-{epoch:012d}-{dest}-{unique}.view"


def table_rows_name(lineage: str, epoch: int, dest: int, unique: str) -> str:
    """Return the name of the file that a task writes with rows for a table.

    Args:
        lineage: The lineage of the pipeline.
        epoch: The epoch of the rows.
        dest: The destination of the rows.
        unique: Hexadecimal digits that no other attempt has.
    """
    return f"{lineage}-{epoch:012d}-{dest}-{unique}.table"


def rows_name(
    lineage: str, epoch: int, fence: int, level: int, partition: int, attempt: int
) -> str:
    """Return the name of the file in which a task stores rows for a later Spark job of its epoch.

    Args:
        lineage: The lineage of the pipeline.
        epoch: The number of the epoch.
        fence: The fence of the driver that runs it.
        level: The level of the task, counted over the whole plan.
        partition: The partition of the task.
        attempt: The id of the task attempt.
    """
    return f"{lineage}-{epoch:012d}-{fence:012d}-{level}-{partition}-{attempt:016x}.rows"


def ended_rows(names: Iterable[str], lineage: str, fence: int, epoch: int) -> tuple[str, ...]:
    """Return the names of files with rows of a driver's epochs that have ended.

    Args:
        names: The names of all files.
        lineage: The lineage of the pipeline.
        fence: The fence of the driver.
        epoch: The driver's last epoch that has ended.
    """
    return tuple(
        name
        for name, its_fence, its_epoch in _rows(names, lineage)
        if its_fence == fence and its_epoch <= epoch
    )


def left_rows(names: Iterable[str], lineage: str, fence: int) -> tuple[str, ...]:
    """Return the names of files with rows of drivers with lower fences.

    Such a driver may still read them, but it cannot commit any more.

    Args:
        names: The names of all files.
        lineage: The lineage of the pipeline.
        fence: The fence of this driver.
    """
    return tuple(name for name, its_fence, _ in _rows(names, lineage) if its_fence < fence)


def _rows(names: Iterable[str], lineage: str) -> Iterator[tuple[str, int, int]]:
    """Yield the names of files with rows, with their fences and epochs."""
    for name in names:
        match = _ROWS.fullmatch(name)
        if match is not None and match["lineage"] == lineage:
            yield name, int(match["fence"]), int(match["epoch"])


def named_by(manifest: Manifest) -> frozenset[str]:
    """Return the names of the files of tasks that a manifest needs: deltas, views, table rows."""
    deltas = (
        delta_name(manifest.lineage, *shard, *each)
        for shard, head in manifest.heads.items()
        for each in head.deltas
    )
    keyed = (
        keyed_delta_name(manifest.lineage, store, written_by, *each)
        for (store, partition), head in manifest.keyed.items()
        for written_by, each in head.files(partition)
    )
    others = {view.file for view in manifest.views.values()}
    others |= {file for write in manifest.unwritten for file in write.files}
    return frozenset(deltas) | frozenset(keyed) | others


def unneeded(
    names: Iterable[str], lineage: str, kept: Sequence[Manifest], pinned: Iterable[Manifest] = ()
) -> tuple[str, ...]:
    """Return the names of the files of tasks that neither kept nor later manifests need.

    Args:
        names: The names of all files.
        lineage: The lineage of the pipeline.
        kept: All manifests, the oldest first, but for older ones that are pinned.
        pinned: The manifests of pinned epochs, see ``savepoint``.
    """
    if not kept:
        raise InvariantError("no manifest is kept")
    oldest = kept[0].epoch
    needed = {name for manifest in (*kept, *pinned) for name in named_by(manifest)}
    return tuple(
        name
        for name in names
        if (epoch := _written_in(name, lineage)) is not None
        and epoch <= oldest
        and name not in needed
    )


def written_after(names: Iterable[str], lineage: str, epoch: int) -> bool:
    """Whether tasks of a later epoch have stored files that a manifest may name.

    Args:
        names: The names of all files.
        lineage: The lineage of the pipeline.
        epoch: The last committed epoch.
    """
    epochs = (_written_in(name, lineage) for name in names)
    return any(each is not None and each > epoch for each in epochs)


def half_written(names: Iterable[str], lineage: str, newest: int, fence: int) -> tuple[str, ...]:
    """Return the hidden names of unfinished files whose result cannot be used any more.

    Mostly, their writers were killed. One that is still writing fails, but is too late anyway.

    Args:
        names: The names of all files.
        lineage: The lineage of the pipeline.
        newest: The last committed epoch.
        fence: The fence of this driver.
    """
    hidden = {name: match["name"] for name in names if (match := _HIDDEN.fullmatch(name))}
    rows = {
        *ended_rows(hidden.values(), lineage, fence, newest),
        *left_rows(hidden.values(), lineage, fence),
    }
    return tuple(
        name
        for name, final in hidden.items()
        if final in rows or _is_over(final, lineage, newest, fence)
    )


def _is_over(name: str, lineage: str, newest: int, fence: int) -> bool:
    """Whether a file is too late: its epoch is committed, or it claims a lower fence."""
    epoch, claimed = _written_in(name, lineage), fence_in(name)
    if epoch is None:
        epoch = epoch_in(name, lineage)
    return (epoch is not None and epoch <= newest) or (claimed is not None and claimed < fence)


def what_to_do_about(name: str) -> str:
    """Return the end of a message about a damaged file: its epoch, and what operators can do.

    It is empty for a file that no manifest names.

    Args:
        name: The name or the path of the file.
    """
    name = name.rpartition("/")[2]
    match = _file_of_task(name)
    if match is None:
        return ""
    return (
        f" (a file of epoch {int(match['epoch'])}). Restore it, or start from an older savepoint: "
        "`beam-spark-savepoint verify FOLDER` says which epochs in a folder are whole"
    )


def _written_in(name: str, lineage: str) -> int | None:
    """Return the epoch whose tasks have written a file; None: no task of this lineage has."""
    match = _file_of_task(name)
    return int(match["epoch"]) if match and match["lineage"] == lineage else None


def _file_of_task(name: str) -> re.Match[str] | None:
    """Match the name of a file that a manifest may name."""
    patterns = _DELTA, _KEYED, _VIEW, _TABLE_ROWS
    return next(filter(None, (each.fullmatch(name) for each in patterns)), None)
