"""A driver continues after another one, and leaves no more files than that would have."""

import dataclasses

import pytest

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.recovery.driver_start import KEPT, Checkpoints, DriverStart
from beam_spark_runner.recovery.heads import DeltaId, Head
from beam_spark_runner.recovery.manifest import (
    FencedError,
    IncompatibleCheckpointError,
    View,
    ViewId,
    encode,
    manifest_name,
)
from beam_spark_runner.recovery.migration import PipelineVersion
from beam_spark_runner.recovery.sweep import delta_name, rows_name, view_name
from tests.unit.recovery.drivers import VERSION, commit, start
from tests.unit.recovery.files import Files


def epochs(files: Files) -> tuple[list[int], list[int]]:
    """Return of which epochs there are manifests and deltas."""
    numbers = range(1, 20)
    return (
        [each for each in numbers if manifest_name("main", each) in files.files],
        [each for each in numbers if delta_name("main", 0, 0, each, 7) in files.files],
    )


def test_a_start_continues_after_the_newest_manifest_under_its_own_fence() -> None:
    files = Files()
    first = start(files)
    assert (first.manifest.epoch, first.manifest.fence) == (0, 1)
    commit(first, files)
    second = start(files)
    assert (second.manifest.epoch, second.manifest.fence) == (1, 2)


def test_what_tasks_have_stored_is_durable_before_a_manifest_names_it() -> None:
    files = Files()
    driver = start(files, tasks_sync=False)
    first = Head(DeltaId(1, 7))
    manifest = dataclasses.replace(
        driver.manifest,
        epoch=1,
        parent=0,
        heads={(0, 0): first, (1, 0): first},
        views={ViewId(3, b"w"): View("main-000000000001-3-ab.view", 5)},
    )
    driver.commit(manifest)
    heads = {(0, 0): Head(DeltaId(2, 8), (first.delta,)), (1, 0): first}
    driver.commit(dataclasses.replace(manifest, epoch=2, parent=1, heads=heads))
    assert files.made_durable == [
        set(),  # the fence
        {
            delta_name("main", 0, 0, 1, 7),
            delta_name("main", 1, 0, 1, 7),
            "main-000000000001-3-ab.view",
        },
        {delta_name("main", 0, 0, 2, 8)},
    ]


def test_each_epoch_deletes_what_it_supersedes() -> None:
    files = Files()
    driver = start(files)
    for _ in range(5):
        commit(driver, files)
        driver.sweep()
    assert epochs(files) == ([3, 4, 5], [3, 4, 5])


@pytest.mark.parametrize("commits", range(KEPT))
def test_a_start_deletes_what_one_that_died_has_left(commits: int) -> None:
    """However few epochs it commits itself: a pipeline may be started again and again."""
    files = Files()
    dies = start(files)
    for _ in range(6):
        commit(dies, files)
    driver = start(files)
    driver.sweep()
    for _ in range(commits):
        commit(driver, files)
        driver.sweep()
    kept = [4 + commits, 5 + commits, 6 + commits]
    assert epochs(files) == (kept, kept)


def test_what_a_damaged_manifest_needs_is_not_known() -> None:
    files = Files()
    dies = start(files)
    for _ in range(6):
        commit(dies, files)
    files.files[manifest_name("main", 5)] = b"nonsense"
    driver = start(files)
    driver.sweep()
    assert epochs(files) == ([4, 5, 6], [1, 2, 3, 4, 5, 6])
    for _ in range(2):
        commit(driver, files)
        driver.sweep()
    assert epochs(files) == ([6, 7, 8], [6, 7, 8])


class Overtaken(Files):
    """Another driver commits between the first look at what there is and the reading of it."""

    def __init__(self, files: dict[str, bytes], other: DriverStart) -> None:
        super().__init__()
        self.files = files
        self._other: DriverStart | None = other

    def read(self, name: str) -> bytes:
        other, self._other = self._other, None
        if other is not None:
            commit(other, self)
            other.sweep()
        return super().read(name)


def test_a_start_does_not_mind_a_driver_that_continues_meanwhile() -> None:
    files = Files()
    other = start(files)
    for _ in range(4):
        commit(other, files)
        other.sweep()
    driver = start(Overtaken(files.files, other))
    assert (driver.manifest.epoch, driver.manifest.fence) == (5, 2)


def test_a_start_that_cannot_continue_claims_nothing() -> None:
    files = Files()
    with pytest.raises(OptionsError, match="nothing has been committed"):
        start(files, "resume")
    assert not files.files
    commit(start(files, "fresh"), files)
    with pytest.raises(OptionsError, match="has committed 1 epochs"):
        start(files, "fresh")
    with pytest.raises(IncompatibleCheckpointError):
        DriverStart(
            Checkpoints(storage=files, lineage="main", restart="auto", key_groups=128),
            PipelineVersion(plan={}, steps={}),
            1,
        )
    assert [name for name in files.files if name.endswith(".fence")] == ["000000000001.fence"]


def test_a_stream_of_a_server_does_not_begin_again_with_its_savepoint() -> None:
    saved, files = Files(), Files()
    commit(start(saved), saved)
    assert start(Files(), "resume", savepoint=saved).manifest.epoch == 1
    with pytest.raises(OptionsError, match="nothing has been committed"):
        start(files, "continue", savepoint=saved, owner=b"job")
    assert not files.files


def test_a_stream_of_a_server_does_not_take_back_what_others_have_continued() -> None:
    files = Files()
    commit(start(files, owner=b"job"), files)
    assert start(files, "continue", owner=b"job").manifest.fence == 2
    other = start(files)
    with pytest.raises(FencedError, match=r"with start number 3\); this program does not start"):
        start(files, "continue", owner=b"job")
    commit(other, files)  # it is not fenced off


def test_what_contradicts_this_version_is_refused() -> None:
    files = Files()
    commit(start(files, partitions=2), files)
    checkpoints = Checkpoints(storage=files, lineage="main", restart="auto", key_groups=128)
    driver = DriverStart(checkpoints, VERSION, 5, lambda last: ())
    assert driver.manifest.partitions == 2  # its state has to be redistributed
    with pytest.raises(IncompatibleCheckpointError, match="after epoch 1"):
        DriverStart(checkpoints, VERSION, 5, lambda last: (f"after epoch {last.epoch}",))


def test_rows_go_with_their_epoch_and_those_of_an_earlier_start_at_once() -> None:
    files = Files()
    first = start(files)
    for epoch in (1, 2):
        files.files[rows_name("main", epoch, 1, 12, 0, 7)] = b""
    commit(first, files)
    first.sweep()
    assert [name for name in files.files if name.endswith(".rows")] == [
        rows_name("main", 2, 1, 12, 0, 7)
    ]
    second = start(files)
    second.sweep()
    files.files[rows_name("main", 2, 2, 12, 0, 7)] = b""
    first.sweep()  # it does not know yet that it has been fenced off
    assert [name for name in files.files if name.endswith(".rows")] == [
        rows_name("main", 2, 2, 12, 0, 7)
    ]
    files.files[rows_name("main", 2, 1, 12, 0, 8)] = b""  # it continues until it commits
    second.sweep()
    assert rows_name("main", 2, 1, 12, 0, 8) in files.files
    first.give_up()
    second.give_up()
    assert not [name for name in files.files if name.endswith(".rows")]


def test_what_another_version_has_committed_meanwhile_is_checked() -> None:
    """A slow commit of a lower fence may be of a version with other steps."""
    files = Files()
    other = start(files)
    commit(other, files)
    mine = start(files)
    renamed = {"step Other": VERSION.plan["step Count"]}
    last = other.manifest
    current_element = dataclasses.replace(last, epoch=2, parent=1, plan=renamed)
    files.files[manifest_name("main", 2)] = encode(current_element)
    with pytest.raises(IncompatibleCheckpointError, match="Other"):
        mine.commit(dataclasses.replace(mine.manifest, epoch=2, parent=1))


def test_a_start_keeps_its_chain_if_one_without_a_chain_has_committed_meanwhile() -> None:
    files = Files()
    mine = start(files, chain="mine")
    last = mine.manifest
    of_other = dataclasses.replace(last, epoch=1, parent=0, fence=0, chain="")
    files.files[manifest_name("main", 1)] = encode(of_other)
    mine.commit(dataclasses.replace(last, epoch=1, parent=0))
    assert (mine.manifest.epoch, mine.manifest.chain) == (1, "mine")


def test_what_starts_leave_that_fail_again_and_again_does_not_pile_up() -> None:
    """Tasks have stored something of an epoch that no start has brought to its end."""
    files = Files()
    commit(start(files), files)
    numbers = []
    for attempt in range(20):
        driver = start(files)
        driver.sweep()
        if (left := driver.superseding()) is not None:
            assert left.heads == driver.manifest.heads
            driver.commit(left)
        epoch = driver.manifest.epoch + 1
        files.files[delta_name("main", 0, 0, epoch, attempt)] = b""
        files.files[view_name("main", epoch, 3, f"{attempt:x}")] = b""
        numbers.append(len(files.files))
    assert set(numbers[-10:]) == {14}
    assert delta_name("main", 0, 0, 1, 7) in files.files


def test_nothing_is_superseded_where_nothing_is_left() -> None:
    files = Files()
    assert start(files).superseding() is None
    commit(driver := start(files), files)
    assert driver.superseding() is None
    assert start(files).superseding() is None


def test_a_driver_that_was_overtaken_knows() -> None:
    files = Files()
    commit(first := start(files), files)
    first.check_fence()
    second = start(files)
    with pytest.raises(FencedError):
        first.check_fence()
    second.check_fence()


def test_a_driver_whose_folder_was_emptied_stops() -> None:
    """Another one may have begun in it again."""
    files = Files()
    commit(driver := start(files), files)
    commit(driver := start(files), files)
    files.files.clear()
    for begins_anew in (False, True):
        if begins_anew:
            commit(start(files), files)
        with pytest.raises(FencedError, match="were removed while it ran"):
            driver.commit(dataclasses.replace(driver.manifest, epoch=3, parent=2))
