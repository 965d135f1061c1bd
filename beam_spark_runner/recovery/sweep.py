"""Which files of earlier epochs nobody needs any more: deltas, views, and what was half written.

What tasks write has a name that says of which epoch it is. A manifest names the deltas that its
shards are rebuilt from, and its views, one by one.
"""

import re
from collections.abc import Iterable, Sequence

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.recovery.manifest import Manifest

_DELTA = re.compile(
    r"\.?(?P<lineage>[\w.-]+)-(?P<level>\d+)-(?P<partition>\d+)-(?P<epoch>\d{12})-"
    r"[0-9a-f]{16}\.delta(\.[0-9a-f]+)?"
)
_VIEW = re.compile(r"\.?(?P<lineage>[\w.-]+)-(?P<epoch>\d{12})-\d+-[0-9a-f]+\.view(\.[0-9a-f]+)?")


def delta_name(lineage: str, level: int, partition: int, epoch: int, attempt: int) -> str:
    """Return the name of a delta's file. Those of a shard sort by their epochs."""
    return f"{lineage}-{level}-{partition}-{epoch:012d}-{attempt:016x}.delta"


def view_name(lineage: str, epoch: int, dest: int, unique: str) -> str:
    """Return the name of the file that a task writes with panes of a side input.

    Args:
        lineage: of the pipeline.
        epoch: in which they have fired.
        dest: that gathers the side input.
        unique: hexadecimal digits, of no other attempt.
    """
    return f"{lineage}-{epoch:012d}-{dest}-{unique}.view"


def unneeded(names: Iterable[str], lineage: str, kept: Sequence[Manifest]) -> tuple[str, ...]:
    """Return the names of the files that neither a manifest that is kept needs, nor a later one.

    Tasks that write them under hidden names first may have been killed: those are among them.

    Args:
        names: of all files.
        lineage: whose.
        kept: the oldest first; all that there are.
    """
    if not kept:
        raise InvariantError("no manifest is kept")
    oldest = kept[0].epoch
    needed = {view.file for manifest in kept for view in manifest.views.values()}
    for manifest in kept:
        for shard, head in manifest.heads.items():
            needed |= {delta_name(lineage, *shard, *each) for each in (*head.older, head.delta)}
    return tuple(
        name
        for name in names
        if (match := _DELTA.fullmatch(name) or _VIEW.fullmatch(name)) is not None
        and match["lineage"] == lineage
        and int(match["epoch"]) <= oldest
        and name not in needed
    )
