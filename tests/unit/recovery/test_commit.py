"""Several drivers, some of which are taken for dead and are not."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TypeVar

import pytest

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.recovery.commit import claim, commit, newest, superseded
from beam_spark_runner.recovery.manifest import (
    CorruptManifestError,
    FencedError,
    Manifest,
    encode,
    epochs_of,
    fence_name,
    manifest_name,
)
from tests.unit.recovery.files import Files

EPOCHS = epochs_of("main")
FIRST = Manifest(epoch=1, fence=1, lineage="main", parent=0, partitions=2, key_groups=128)


class Unsure(Files):
    """Creates a file, and then the answer is lost: as an error, or since NFS asks twice."""

    def __init__(self, raises: bool) -> None:
        super().__init__()
        self._raises = raises

    def create(self, name: str, data: bytes, after: Iterable[str] = ()) -> bool:
        if super().create(name, data, after) and self._raises:
            raise TimeoutError
        return False


class Racing(Files):
    """Somebody else creates the same file first."""

    def __init__(self, others: bytes) -> None:
        super().__init__()
        self._others = others

    def create(self, name: str, data: bytes, after: Iterable[str] = ()) -> bool:
        self.files.setdefault(name, self._others)
        return super().create(name, data, after)


def _same_as(files: Files) -> Files:
    """Return another driver's view of the same files."""
    other = Files()
    other.files = files.files
    return other


_F = TypeVar("_F", bound=Files)


def claimed(files: _F, fence: int = 1) -> _F:
    """Return storage in which a driver has claimed a fence."""
    files.files[fence_name(fence)] = b""
    return files


def test_fences_grow() -> None:
    files = Files()
    assert [claim(files) for _ in range(3)] == [1, 2, 3]


def test_the_newest_manifest_is_found() -> None:
    files = claimed(Files())
    assert newest(files, EPOCHS) == ()
    for epoch in (1, 2, 10):
        commit(files, EPOCHS, dataclasses.replace(FIRST, epoch=epoch))
    commit(files, epochs_of("other"), dataclasses.replace(FIRST, epoch=11, lineage="other"))
    assert [each.epoch for each in newest(files, EPOCHS)] == [10]
    assert [each.epoch for each in newest(files, EPOCHS, 2)] == [2, 10]
    assert [each.epoch for each in newest(files, EPOCHS, 9)] == [1, 2, 10]


def test_what_comes_before_a_damaged_manifest_is_left_out() -> None:
    files = claimed(Files())
    for epoch in (1, 2, 3):
        commit(files, EPOCHS, dataclasses.replace(FIRST, epoch=epoch))
    files.files[manifest_name("main", 2)] = b"nonsense"
    assert [each.epoch for each in newest(files, EPOCHS, 3)] == [3]


def test_a_damaged_manifest_is_named_with_the_one_before() -> None:
    files = claimed(Files())
    commit(files, EPOCHS, FIRST)
    commit(files, EPOCHS, dataclasses.replace(FIRST, epoch=2))
    files.files[manifest_name("main", 2)] = b"nonsense"
    with pytest.raises(CorruptManifestError) as raised:
        newest(files, EPOCHS)
    assert manifest_name("main", 2) in str(raised.value)
    assert f"the previous one is {manifest_name('main', 1)}" in str(raised.value)


def test_a_damaged_manifest_without_one_before_is_named() -> None:
    files = Files()
    files.create(manifest_name("main", 1), b"nonsense")
    with pytest.raises(CorruptManifestError) as raised:
        newest(files, EPOCHS)
    assert manifest_name("main", 1) in str(raised.value)
    assert "before" not in str(raised.value)


def test_a_driver_adopts_what_one_of_a_lower_fence_has_committed() -> None:
    others = dataclasses.replace(FIRST, clock_us=5)
    mine = dataclasses.replace(FIRST, fence=2)
    assert commit(claimed(Racing(encode(others)), 2), EPOCHS, mine) == others


def test_a_driver_that_adopts_continues_under_its_own_fence() -> None:
    files = Files()
    first, second = claim(files), claim(files)
    files.create(manifest_name("main", 1), encode(dataclasses.replace(FIRST, fence=first)))
    adopted = commit(files, EPOCHS, dataclasses.replace(FIRST, fence=second, clock_us=7))
    assert adopted.fence == first
    mine = dataclasses.replace(adopted, fence=second, epoch=2, parent=1)
    assert commit(files, EPOCHS, mine) == mine


def test_a_commit_whose_answer_was_lost_is_won() -> None:
    assert commit(claimed(Unsure(raises=False)), EPOCHS, FIRST) == FIRST


def test_after_an_error_a_commit_is_tried_again() -> None:
    files = claimed(Unsure(raises=True))
    with pytest.raises(TimeoutError):
        commit(files, EPOCHS, FIRST)
    assert commit(files, EPOCHS, FIRST) == FIRST
    assert commit(files, EPOCHS, dataclasses.replace(FIRST, clock_us=8)) == FIRST


def test_a_claim_whose_answer_was_lost_costs_a_number() -> None:
    files = Unsure(raises=True)
    with pytest.raises(TimeoutError):
        claim(files)
    assert claim(_same_as(files)) == 2


def test_a_claim_that_loses_a_race_takes_the_next_number() -> None:
    class Late(Files):
        def names(self) -> Sequence[str]:
            return []

    files = Late()
    assert [claim(files) for _ in range(3)] == [1, 2, 3]


def test_a_driver_stops_before_it_commits_when_another_one_has_started() -> None:
    files = Files()
    fence = claim(files)
    claim(files)
    with pytest.raises(FencedError):
        commit(files, EPOCHS, dataclasses.replace(FIRST, fence=fence))
    assert manifest_name("main", 1) not in files.files


def test_a_driver_stops_where_one_of_a_higher_fence_has_committed() -> None:
    with pytest.raises(FencedError):
        commit(Racing(encode(dataclasses.replace(FIRST, fence=2))), EPOCHS, FIRST)


def test_a_driver_does_not_commit_again_what_it_slept_through() -> None:
    # Its epoch's manifest was superseded and deleted meanwhile, so that its name is free.
    class Slow(Files):
        def create(self, name: str, data: bytes, after: Iterable[str] = ()) -> bool:
            others = _same_as(self)
            commit(others, EPOCHS, dataclasses.replace(FIRST, fence=claim(others), epoch=2))
            return super().create(name, data, after)

    slow = Slow()
    with pytest.raises(FencedError):
        commit(slow, EPOCHS, dataclasses.replace(FIRST, fence=claim(_same_as(slow))))


def test_a_start_that_is_overtaken_while_it_reads_stops() -> None:
    """What it has listed was deleted by then, and written again by a driver that is late."""

    class Slow(Files):
        def read(self, name: str) -> bytes:
            claim(_same_as(self))
            self.files[name] = encode(dataclasses.replace(FIRST, clock_us=7))
            return super().read(name)

    slow = Slow()
    fence = claim(slow)
    commit(slow, EPOCHS, dataclasses.replace(FIRST, fence=fence))
    assert newest(_same_as(slow), EPOCHS, fence=fence)
    with pytest.raises(FencedError):
        newest(slow, EPOCHS, fence=fence)


@pytest.mark.parametrize(
    ("keep", "fence", "epochs"),
    [
        pytest.param(3, 2, [1, 2], id="all but the newest ones, of other drivers too"),
        pytest.param(1, 2, [1, 2, 3, 4], id="the newest one stays"),
        pytest.param(5, 2, [], id="no more than are kept"),
        pytest.param(9, 2, [], id="fewer than are kept"),
        pytest.param(3, 1, [], id="not by a driver that is fenced"),
    ],
)
def test_what_may_be_deleted(keep: int, fence: int, epochs: list[int]) -> None:
    files = Files()
    for start in ([1, 2], [3, 4, 5]):
        claimed = claim(files)
        for epoch in start:
            commit(files, EPOCHS, dataclasses.replace(FIRST, fence=claimed, epoch=epoch))
    commit(files, epochs_of("other"), dataclasses.replace(FIRST, fence=2, lineage="other"))
    names = tuple(manifest_name("main", epoch) for epoch in epochs)
    assert superseded(files, EPOCHS, keep, fence) == names


def test_the_newest_manifest_may_never_be_deleted() -> None:
    with pytest.raises(InvariantError):
        superseded(Files(), EPOCHS, 0, 1)
