"""What may be deleted of what tasks have written."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

import pytest

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.recovery.heads import DeltaId, Head
from beam_spark_runner.recovery.manifest import Manifest, View, ViewId, fence_name, manifest_name
from beam_spark_runner.recovery.sweep import (
    delta_name,
    ended_rows,
    half_written,
    left_rows,
    rows_name,
    unneeded,
    view_name,
)

NONE = Manifest(epoch=0, fence=1, lineage="main", parent=None, partitions=1, key_groups=128)


def manifest(
    epoch: int, *older: int, views: Mapping[bytes, str] = MappingProxyType({})
) -> Manifest:
    return dataclasses.replace(
        NONE,
        epoch=epoch,
        heads={(1, 0): Head(DeltaId(epoch, 77), tuple(DeltaId(each, 77) for each in older))},
        views={ViewId(4, window): View(file, 0) for window, file in views.items()},
    )


def delta(epoch: int, partition: int = 0, lineage: str = "main") -> str:
    return delta_name(lineage, 1, partition, epoch, 77)


def test_what_a_shard_is_rebuilt_from_is_needed() -> None:
    kept = [manifest(7, 2, 5, 6), manifest(8, 5, 6, 7), manifest(9, 5, 8)]
    names = [delta(epoch) for epoch in range(1, 12)]
    assert unneeded(names, "main", kept) == (delta(1), delta(3), delta(4))
    assert unneeded(names, "main", kept[1:]) == tuple(map(delta, (1, 2, 3, 4)))
    assert unneeded(names, "main", kept[2:]) == tuple(map(delta, (1, 2, 3, 4, 6, 7)))


def test_what_rejected_attempts_wrote_is_not() -> None:
    kept = [manifest(7, 5), manifest(8, 5, 7)]
    rejected = [delta_name("main", 1, 0, epoch, 78) for epoch in (5, 7, 8, 9)]
    assert unneeded([*rejected, delta(5)], "main", kept) == tuple(rejected[:2])


def test_what_rejected_attempts_wrote_in_a_shard_that_is_empty() -> None:
    kept = [manifest(epoch, 5) for epoch in (7, 8, 9)]
    names = [delta(epoch, partition=1) for epoch in (6, 7, 8)]
    assert unneeded(names, "main", kept) == (delta(6, 1), delta(7, 1))


def test_what_the_killed_have_left() -> None:
    """A file has a hidden name until all of it is written."""
    names = [
        delta(8),
        view_name("main", 8, 4, "ff"),
        manifest_name("main", 8),
        delta(9),
        manifest_name("main", 9),
        fence_name(4),
        fence_name(5),
        rows_name("main", 8, 5, 1, 0, 77),
        rows_name("main", 9, 4, 1, 0, 77),
        rows_name("main", 9, 5, 1, 0, 77),
        delta(8, lineage="other"),
        rows_name("other", 8, 4, 1, 0, 77),
        manifest_name("other", 8),
        "notes",
    ]
    hidden = [f".{name}.0a1b" for name in names]
    found = half_written([*names, *hidden], "main", 8, 5)
    assert found == (*hidden[:3], hidden[5], *hidden[7:9])
    assert unneeded(hidden, "main", [manifest(20)]) == ()


def test_views_are_needed_as_long_as_a_manifest_names_them() -> None:
    named, once, later, never = (view_name("main", epoch, 4, "ff") for epoch in (2, 3, 8, 4))
    kept = [
        manifest(7, views={b"a": named, b"b": once}),
        manifest(8, views={b"a": named, b"b": later}),
    ]
    names = [named, once, later, never]
    assert unneeded(names, "main", kept) == (never,)
    assert unneeded(names, "main", kept[1:]) == (once, never)


def test_nothing_else_is_touched() -> None:
    kept = [manifest(epoch, 5) for epoch in (7, 8, 9)]
    names = [delta(1, lineage="other"), "main-000000000001.manifest", "000000000001.fence", "notes"]
    assert unneeded(names, "main", kept) == ()


def test_something_must_be_kept() -> None:
    with pytest.raises(InvariantError):
        unneeded([], "main", [])


def rows(epoch: int, fence: int, lineage: str = "main") -> str:
    return rows_name(lineage, epoch, fence, 12, 0, 77)


def test_rows_of_epochs_that_have_ended() -> None:
    mine = [rows(epoch, fence=3) for epoch in (7, 8, 9)]
    older = [rows(epoch, fence) for epoch, fence in ((7, 1), (9, 2))]
    others = [rows(7, fence=4), rows(7, fence=2, lineage="other"), delta(7)]
    names = [*mine, *older, *others]
    assert ended_rows(names, "main", fence=3, epoch=8) == tuple(mine[:2])
    assert left_rows(names, "main", fence=3) == tuple(older)
    assert unneeded(names, "main", [manifest(9)]) == (delta(7),)
