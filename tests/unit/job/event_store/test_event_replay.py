"""A restarted server finds the events of all earlier starts, whatever has happened to them."""

import io
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import pytest
from typing_extensions import override

from beam_spark_runner.job.event_store.event_files import files_of_start, in_order
from beam_spark_runner.job.event_store.event_frames import Event, frame
from beam_spark_runner.job.event_store.event_replay import replay
from beam_spark_runner.job.event_store.job_event_store import JobEventStore, open_event_store
from beam_spark_runner.job.watching.messages import MAX_MESSAGES
from beam_spark_runner.job.watching.record import JobRecord, StateChange
from beam_spark_runner.storage.folder import Folder
from beam_spark_runner.storage.mounted_folder import MountedFolder
from beam_spark_runner.storage.object_folder import ObjectFolder
from tests.unit.job.event_store.job_events import message, shown


@pytest.fixture(params=["mounted", "stored"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    if request.param == "stored":
        (tmp_path / "events").mkdir()  # obstore's store of local files does not create it
        return ObjectFolder(f"file://{tmp_path}")
    return MountedFolder(str(tmp_path))


def opened(
    folder: Folder, start: int, warnings: list[str] | None = None, *, buffer_bytes: int = 1 << 20
) -> JobEventStore:
    warn = pytest.fail if warnings is None else warnings.append
    return open_event_store(
        folder, start, buffer_bytes=buffer_bytes, flush_interval_s=1e6, warn=warn
    )


def record(folder: Folder, start: int, *events: Event) -> None:
    """Record events, each by a separate write."""
    store = opened(folder, start)
    for event in events:
        store.append(event)
        assert store.flush(60)
    store.close()


def replayed(folder: Folder) -> list[str]:
    return [*map(shown, replay(folder, pytest.fail))]


def files(folder: Folder) -> Sequence[str]:
    return in_order((folder / "events").names())


def test_a_job_without_events_has_none(folder: Folder) -> None:
    assert replayed(folder) == []


def test_each_start_has_files_of_its_own(folder: Folder) -> None:
    record(folder, 1, StateChange("RUNNING", 1.0), message("one"))
    first = {name: (folder / "events").read(name) for name in files(folder)}
    record(folder, 2, StateChange("RUNNING", 2.0), message("two"))
    assert {name: (folder / "events").read(name) for name in files(folder)}.items() > first.items()
    assert replayed(folder) == ["RUNNING", "one", "RUNNING", "two"]
    is_mounted = isinstance(folder, MountedFolder)
    assert files(folder) == (["1", "2"] if is_mounted else ["1.0", "1.1", "2.0", "2.1"])


def test_files_are_read_in_the_order_in_which_they_were_written() -> None:
    names = ["10", "9", "10.2", "10.10", "2.0", ".10.0.ab", "other", "1.tmp", "-3"]
    assert in_order(names) == ["2.0", "9", "10", "10.2", "10.10"]


def test_many_starts_and_objects_are_read_in_order(folder: Folder) -> None:
    for start in range(1, 13):
        record(folder, start, *(message(f"{start} {number}") for number in range(12)))
    assert replayed(folder) == [f"{start} {n}" for start in range(1, 13) for n in range(12)]


@pytest.mark.parametrize("cut", [b"", b"\0\0\0\0\0\0\0\0\0\0\0\0", b"\2\0\xff\xff\xff\x7f\1\2\3\4"])
def test_after_a_damaged_file_the_next_one_is_read(
    folder: Folder, cut: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    record(folder, 1, message("one"))
    content = frame(message("two")) + (cut or frame(message("lost"))[:-1])
    (folder / "events").put_content("2", io.BytesIO(content))
    record(folder, 3, message("three"))
    assert replayed(folder) == ["one", "two", "three"]
    (line,) = [each for each in caplog.messages if "incomplete" in each]
    assert line.startswith("events of start 2 are read up to an incomplete record: ")


class Unreadable(MountedFolder):
    """Fails to read some of its files."""

    @override
    def __truediv__(self, name: str) -> "Unreadable":
        return Unreadable(self.path_of(name))

    @override
    def open(self, name: str) -> BinaryIO:
        if name in ("2", "4"):
            raise OSError("the disk is broken")
        return super().open(name)


def test_files_that_cannot_be_read_are_left_out_with_one_warning(tmp_path: Path) -> None:
    for start in range(1, 6):
        record(MountedFolder(str(tmp_path)), start, message(f"{start}"))
    warnings: list[str] = []
    assert [*map(shown, replay(Unreadable(str(tmp_path)), warnings.append))] == ["1", "3", "5"]
    assert warnings == [
        "some states and messages of earlier starts cannot be shown: the disk is broken"
    ]


def test_storage_that_cannot_be_listed_is_a_warning(tmp_path: Path) -> None:
    warnings: list[str] = []
    assert [*replay(ObjectFolder(f"file://{tmp_path}/missing"), warnings.append)] == []
    assert len(warnings) == 1


def test_a_reader_may_stop_anywhere(folder: Folder) -> None:
    for start in range(1, 40):
        record(folder, start, message(f"{start}"))
    found = replay(folder, pytest.fail)
    assert shown(next(found)) == "1"
    found.close()  # type: ignore[attr-defined]


def test_a_record_of_a_job_limits_what_is_stored_of_a_replay(folder: Folder) -> None:
    store = opened(folder, 1, buffer_bytes=1 << 16)
    store.append(StateChange("RUNNING", 1.0))
    for number in range(MAX_MESSAGES + 10):
        store.append(message(f"{number}"))
        if not number % 1_000:
            assert store.flush(60)
    store.close()
    job = JobRecord({})
    for event in replay(folder, pytest.fail):
        (job.states if isinstance(event, StateChange) else job.messages.log).append(event)
    assert job.state == "RUNNING"
    assert len(job.events.events()) == MAX_MESSAGES
    assert shown(job.events.events()[-1]) == f"{MAX_MESSAGES + 9}"


def test_clearing_deletes_the_events_of_all_starts(folder: Folder) -> None:
    record(folder, 1, message("one"))
    store = opened(folder, 2)
    store.append(message("two"))
    assert store.flush(60)
    store.close(clear=True)
    assert replayed(folder) == []
    store.close(clear=True)


def test_a_file_of_another_server_is_not_written_to(tmp_path: Path) -> None:
    folder = MountedFolder(str(tmp_path))
    record(folder, 1, message("one"))
    warnings: list[str] = []
    store = opened(folder, 1, warnings)
    store.append(message("two"))
    store.close()
    assert replayed(folder) == ["one"]
    assert len(warnings) == 1


def test_a_folder_that_another_server_has_removed_stays_removed(tmp_path: Path) -> None:
    folder = MountedFolder(str(tmp_path / "job"))
    folder.make()
    warnings: list[str] = []
    early, late = opened(folder, 1, warnings), opened(folder, 2, warnings)
    early.append(message("one"))
    assert early.flush(60)
    folder.remove()
    for store in (early, late):
        store.append(message("two"))
        store.close()
    assert not folder.exists()
    assert len(warnings) == 2


def test_few_events_make_few_objects() -> None:
    assert files_of_start(MountedFolder("/job"), 1).min_interval_s == 0
    assert files_of_start(ObjectFolder("s3://bucket/job"), 1).min_interval_s == 10
