"""Several drivers, some of which are taken for dead and are not."""

import dataclasses
from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from beam_spark_runner.recovery.commit import claim, commit, newest
from beam_spark_runner.recovery.manifest import (
    CorruptManifestError,
    FencedError,
    Manifest,
    decode,
    encode,
    epoch_in,
    manifest_name,
)

FIRST = Manifest(epoch=1, fence=1, lineage="main", parent=0, partitions=2)


class Files:
    """Storage in memory."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def names(self) -> Sequence[str]:
        return list(self.files)

    def read(self, name: str) -> bytes:
        return self.files[name]

    def create(self, name: str, data: bytes) -> bool:
        if name in self.files:
            return False
        self.files[name] = data
        return True


class Racing(Files):
    """Somebody else creates the same file first."""

    def __init__(self, others: bytes) -> None:
        super().__init__()
        self._others = others

    def create(self, name: str, data: bytes) -> bool:
        self.files.setdefault(name, self._others)
        return super().create(name, data)


def test_fences_grow() -> None:
    files = Files()
    assert [claim(files) for _ in range(3)] == [1, 2, 3]


def test_the_newest_manifest_is_found() -> None:
    files = Files()
    assert newest(files, "main") is None
    for epoch in (1, 2, 10):
        commit(files, dataclasses.replace(FIRST, epoch=epoch))
    commit(files, dataclasses.replace(FIRST, epoch=11, lineage="other"))
    found = newest(files, "main")
    assert found is not None
    assert found.epoch == 10


def test_a_damaged_manifest_is_named_with_the_one_before() -> None:
    files = Files()
    commit(files, FIRST)
    commit(files, dataclasses.replace(FIRST, epoch=2))
    files.files[manifest_name("main", 2)] = b"nonsense"
    with pytest.raises(CorruptManifestError) as raised:
        newest(files, "main")
    assert manifest_name("main", 2) in str(raised.value)
    assert f"the one before it is {manifest_name('main', 1)}" in str(raised.value)


def test_a_driver_adopts_what_one_of_a_lower_fence_has_committed() -> None:
    others = dataclasses.replace(FIRST, clock_us=5)
    mine = dataclasses.replace(FIRST, fence=2)
    assert commit(Racing(encode(others)), mine) == others


def test_a_driver_stops_where_one_of_a_higher_fence_has_committed() -> None:
    with pytest.raises(FencedError):
        commit(Racing(encode(dataclasses.replace(FIRST, fence=2))), FIRST)


class Drivers(RuleBasedStateMachine):
    """Drivers start, run epochs, and pause between any two steps for as long as they like."""

    def __init__(self) -> None:
        super().__init__()
        self.files = Files()
        self.drivers: list[Manifest] = []
        self.seen: dict[str, bytes] = {}
        self.highest_committed = 0

    @rule()
    def start(self) -> None:
        fence = claim(self.files)
        found = newest(self.files, "main")
        empty = Manifest(epoch=0, fence=fence, lineage="main", parent=None, partitions=2)
        self.drivers.append(dataclasses.replace(found or empty, fence=fence))

    @rule(which=st.integers(0, 9), clock=st.integers(0, 99))
    def run_an_epoch(self, which: int, clock: int) -> None:
        if not self.drivers:
            return
        which %= len(self.drivers)
        last = self.drivers[which]
        mine = dataclasses.replace(
            last, epoch=last.epoch + 1, parent=last.epoch, clock_us=100 * last.fence + clock
        )
        try:
            committed = commit(self.files, mine)
        except FencedError:
            del self.drivers[which]
            return
        assert mine.fence >= self.highest_committed, "a fenced driver has committed"
        if committed == mine:
            self.highest_committed = mine.fence
        self.drivers[which] = dataclasses.replace(committed, fence=mine.fence)

    @invariant()
    def manifests_never_change_and_form_a_chain(self) -> None:
        for name, data in self.seen.items():
            assert self.files.files[name] == data
        self.seen = dict(self.files.files)
        epochs = sorted(
            epoch for name in self.seen if (epoch := epoch_in(name, "main")) is not None
        )
        assert epochs == list(range(1, len(epochs) + 1))
        for epoch in epochs:
            name = manifest_name("main", epoch)
            assert decode(self.seen[name], name).parent == epoch - 1


TestDrivers = Drivers.TestCase
TestDrivers.settings = settings(max_examples=50, deadline=None)
