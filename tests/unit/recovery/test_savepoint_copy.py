"""Savepoints are complete, whatever the driver of the pipeline deletes meanwhile."""

import dataclasses
from collections.abc import Callable
from typing import BinaryIO

import pytest

from beam_spark_runner.core.errors import CheckpointStorageError, OptionsError
from beam_spark_runner.recovery.checkpoint_subfolder import SUBFOLDER, chosen_subfolder
from beam_spark_runner.recovery.commit import numbers_in
from beam_spark_runner.recovery.driver_start import Checkpoints, DriverStart
from beam_spark_runner.recovery.epoch_writes import EpochWrite
from beam_spark_runner.recovery.manifest import (
    CorruptManifestError,
    epochs_of,
    manifest_name,
    pin_name,
)
from beam_spark_runner.recovery.savepoint_copy import (
    NothingCommittedError,
    Savepoint,
    SavepointExistsError,
    make_savepoint,
    pins,
)
from beam_spark_runner.recovery.sweep import delta_name
from beam_spark_runner.recovery.verification import verified
from beam_spark_runner.state.delta import CorruptDeltaError
from tests.unit.recovery.drivers import VERSION, commit, start, unchecked
from tests.unit.recovery.files import Files

EPOCHS = epochs_of("main")


def running(epochs: int) -> tuple[Files, DriverStart]:
    """Return the files of a pipeline, and its driver."""
    files = Files()
    driver = start(files)
    for _ in range(epochs):
        commit(driver, files)
        driver.sweep()
    return files, driver


def save(source: Files, target: Files) -> int:
    return make_savepoint(Savepoint(unchecked, source, target), "main", "ab")


def names_of(epoch: int, fence: int = 1) -> set[str]:
    """Return the files of a savepoint of an epoch."""
    delta = delta_name("main", 0, 0, epoch, 7)
    return {delta, manifest_name("main", epoch), f"{fence:012d}.fence"}


class Meanwhile(Files):
    """Something else happens before a file is read."""

    def __init__(self, files: Files, event: Callable[[str], None]) -> None:
        super().__init__()
        self.files, self._event = files.files, event

    def read(self, name: str) -> bytes:
        self._event(name)
        if name not in self.files:
            raise CheckpointStorageError("memory", f"no {name}")
        return super().read(name)

    def open(self, name: str) -> BinaryIO | None:
        self._event(name)
        return super().open(name)


def test_a_savepoint_has_what_was_committed_last_and_is_durable() -> None:
    files, driver = running(5)
    target = Files()
    assert save(files, target) == 5
    assert set(target.files) == names_of(5)
    assert target.made_durable[-1] == {delta_name("main", 0, 0, 5, 7)}
    assert not pins(files.names())
    commit(driver, files)
    driver.sweep()
    assert set(target.files) == names_of(5)


def test_a_pipeline_begins_with_a_savepoint_and_leaves_it_as_it_is() -> None:
    files, _ = running(5)
    saved, other = Files(), Files()
    save(files, saved)
    before = dict(saved.files)
    driver = start(other, savepoint=saved)
    assert (driver.manifest.epoch, driver.manifest.fence) == (5, 2)
    commit(driver, other)
    driver.sweep()
    assert saved.files == before
    # From now on it goes on with what it has committed itself.
    again = start(other, "resume", savepoint=Files())
    assert (again.manifest.epoch, again.manifest.fence) == (6, 3)


def test_a_copy_that_was_broken_off_is_made_once_more() -> None:
    files, _ = running(5)
    saved, other = Files(), Files()
    save(files, saved)
    other.files[delta_name("main", 0, 0, 5, 7)] = b""
    assert start(other, "fresh", savepoint=saved).manifest.epoch == 5


def test_what_is_copied_is_not_deleted() -> None:
    """The driver commits and sweeps five times before the one delta is read."""
    files, driver = running(4)
    target = Files()

    def go_on(name: str) -> None:
        if name.endswith(".delta"):
            for _ in range(5):
                commit(driver, files)
                driver.sweep()

    assert save(Meanwhile(files, go_on), target) == 4
    assert set(target.files) == names_of(4)
    assert numbers_in(files, EPOCHS) == [4, 7, 8, 9]
    driver.sweep()
    assert numbers_in(files, EPOCHS) == [7, 8, 9]
    assert delta_name("main", 0, 0, 4, 7) not in files.files


@pytest.mark.parametrize("what", [".manifest", ".delta"])
def test_a_sweep_that_began_before_the_pin_was_there(what: str) -> None:
    files, driver = running(4)
    target, times = Files(), iter(range(2))

    def go_on(name: str) -> None:
        if name.endswith(what) and next(times, None) is not None:
            pinned = [each for each in files.names() if each.endswith(".pin")]
            files.delete(pinned)  # as if it was not seen
            for _ in range(4):
                commit(driver, files)
                driver.sweep()

    assert save(Meanwhile(files, go_on), target) == 12
    assert names_of(12) <= set(target.files)
    assert not pins(files.names())


def test_a_manifest_that_cannot_be_read_is_not_sought_for_ever() -> None:
    files, _ = running(4)

    def fail(name: str) -> None:
        raise CheckpointStorageError("memory", "broken")

    with pytest.raises(CheckpointStorageError, match="broken"):
        save(Meanwhile(files, fail), Files())
    files.files[manifest_name("main", 4)] = b"nonsense"
    with pytest.raises(CorruptManifestError):
        save(files, Files())
    assert not pins(files.names())


def test_a_file_that_is_missing_is_not_sought_for_ever() -> None:
    """Nobody has deleted it because the pipeline has gone on."""
    files, _ = running(4)
    missing = delta_name("main", 0, 0, 4, 7)
    files.delete([missing])
    with pytest.raises(CorruptManifestError, match=f"it refers to {missing}, which is missing"):
        save(files, Files())
    assert not pins(files.names())


def test_there_is_nothing_or_there_is_something_already() -> None:
    files, _ = running(1)
    with pytest.raises(NothingCommittedError):
        save(Files(), Files())
    with pytest.raises(SavepointExistsError):
        save(files, files)


def test_a_savepoint_is_not_made_next_to_the_subfolder_of_a_checkpoint() -> None:
    files, _ = running(1)
    target = Files()
    chosen_subfolder(target, "1")
    with pytest.raises(SavepointExistsError):
        save(files, target)
    assert list(target.names()) == [SUBFOLDER]


def test_a_pin_that_was_left_goes_with_the_next_start() -> None:
    files, driver = running(4)
    files.files[pin_name(4, "cd")] = b""
    for _ in range(4):
        commit(driver, files)
        driver.sweep()
    assert numbers_in(files, EPOCHS) == [4, 6, 7, 8]
    start(files).sweep()
    assert pin_name(4, "cd") not in files.files
    commit(driver := start(files), files)
    driver.sweep()
    assert numbers_in(files, EPOCHS) == [7, 8, 9]


def test_savepoints_that_a_pipeline_cannot_begin_with() -> None:
    files, _ = running(2)
    saved, other = Files(), Files()
    save(files, saved)
    with pytest.raises(OptionsError, match="--savepoint_path: there is no savepoint"):
        start(other, savepoint=Files())
    checkpoints = Checkpoints(
        storage=other,
        lineage="main",
        restart="auto",
        key_groups=64,
        savepoint=lambda: Savepoint(unchecked, saved, other),
    )
    with pytest.raises(OptionsError, match="--max_parallelism: it was 128"):
        DriverStart(checkpoints, VERSION, 1)
    saved.delete([delta_name("main", 0, 0, 2, 7)])
    with pytest.raises(
        OptionsError,
        match=r"--savepoint_path: the file main-.* of the savepoint is missing",
    ):
        start(other, savepoint=saved)
    assert not other.files


def test_a_target_that_fails_is_not_tried_for_ever() -> None:
    """The pipeline goes on meanwhile."""
    files, driver = running(4)

    class Full(Files):
        def put(self, name: str, content: BinaryIO) -> None:
            commit(driver, files)
            raise CheckpointStorageError("memory", "full")

    with pytest.raises(CheckpointStorageError, match="full"):
        save(files, Full())
    assert not pins(files.names())


def test_a_savepoint_is_opened_only_where_a_pipeline_begins() -> None:
    files, _ = running(2)

    def gone() -> Savepoint:
        raise OptionsError("savepoint_path", "there is no folder")

    checkpoints = Checkpoints(
        storage=files, lineage="main", restart="auto", key_groups=128, savepoint=gone
    )
    assert DriverStart(checkpoints, VERSION, 1).manifest.epoch == 2


def test_a_savepoint_of_a_damaged_file_is_none() -> None:
    """The pipeline itself may never read the file again, since it has local copies."""
    files, _ = running(5)
    damaged = delta_name("main", 0, 0, 5, 7)
    files.files[damaged] = b"x"
    target = Files()
    with pytest.raises(CorruptDeltaError, match=damaged):
        make_savepoint(Savepoint(refuse_content, files, target), "main", "ab")
    assert not numbers_in(target, EPOCHS)
    assert not pins(files.names())


def test_a_pipeline_does_not_begin_with_a_damaged_savepoint() -> None:
    files, _ = running(5)
    saved, other = Files(), Files()
    save(files, saved)
    saved.files[delta_name("main", 0, 0, 5, 7)] = b"x"
    with pytest.raises(CorruptDeltaError):
        make_savepoint(Savepoint(refuse_content, saved, other), "main", "ab")
    assert not numbers_in(other, EPOCHS)


def test_all_epochs_are_verified() -> None:
    files, _ = running(5)
    assert [each.problems for each in verified(files, "main", refuse_content)] == [(), (), ()]
    damaged, missing = (delta_name("main", 0, 0, epoch, 7) for epoch in (5, 4))
    files.files[damaged] = b"x"
    del files.files[missing]
    found = {each.epoch: each.problems for each in verified(files, "main", refuse_content)}
    assert list(found) == [5, 4, 3]
    assert (damaged in found[5][0], missing in found[4][0], found[3]) == (True, True, ())
    files.files[manifest_name("main", 3)] = b"nonsense"
    (oldest,) = (each for each in verified(files, "main", refuse_content) if each.epoch == 3)
    assert manifest_name("main", 3) in oldest.problems[0]


def test_an_epoch_that_is_deleted_meanwhile_is_not_damaged() -> None:
    files, _ = running(5)

    def supersede(name: str) -> None:
        if name == delta_name("main", 0, 0, 4, 7):
            files.delete([name, manifest_name("main", 4)])

    both = Meanwhile(files, supersede)
    found = [(each.epoch, each.problems) for each in verified(both, "main", refuse_content)]
    assert found == [(5, ()), (3, ())]


def refuse_content(name: str, content: BinaryIO) -> None:
    """Refuse files that are not empty, as those of the tests are."""
    if content.read():
        raise CorruptDeltaError(name, "it is damaged")


def test_a_pipeline_that_starts_from_a_savepoint_has_another_chain_of_epochs() -> None:
    """Its epochs have the numbers of others that the tables may have. Writes that are left stay."""
    files, saved, other = Files(), Files(), Files()
    write = EpochWrite("Write", "beam-spark-one-1f", 1, ("main-1.table",), 3, "delta")
    files.files[write.files[0]] = b""
    first = start(files, chain="one")
    first.commit(dataclasses.replace(first.manifest, epoch=1, parent=0, unwritten=(write,)))
    assert start(files, chain="two").manifest.chain == "one"
    save(files, saved)
    assert write.files[0] in saved.names()
    start(other, savepoint=saved, chain="three")  # which dies before it commits
    found = start(other, savepoint=saved, chain="four").manifest
    assert (found.chain, found.unwritten) == ("four", (write,))
