from collections.abc import Iterable

import pytest

from beam_spark_runner.core.ids import SegmentId
from beam_spark_runner.driving.stored_writes import StoredWrites
from beam_spark_runner.recovery.batch_manifest import BatchManifest
from beam_spark_runner.recovery.batch_start import BatchStart
from beam_spark_runner.recovery.begun_writes import BegunWrite, TargetState
from beam_spark_runner.recovery.manifest import FencedError
from tests.unit.recovery.files import Files

SEGMENT = SegmentId(3)


class NoWork:
    """No Spark job has a folder."""

    def names(self, folder: str) -> Iterable[str]:
        return ()

    def remove(self, folder: str) -> None:
        raise AssertionError(folder)


def begun(mark: str) -> BegunWrite:
    return BegunWrite(
        fence=1, mark=mark, schema="{}", rows=2, before=TargetState(exists=False, kind="files")
    )


class Started:
    """A start, and its writes."""

    def __init__(self, files: Files) -> None:
        self.start = BatchStart(files, NoWork(), "plan")
        self.writes = StoredWrites(self.start, self._commit)

    def _commit(self, mine: BatchManifest) -> None:
        number = mine.commit + 1
        self.start.commit(
            BatchManifest(
                commit=number,
                fence=mine.fence,
                plan=mine.plan,
                done=mine.done,
                begun=mine.begun,
                written=mine.written,
            )
        )


def test_what_the_first_start_has_found_counts() -> None:
    files = Files()
    first = Started(files)
    assert first.writes.begun(SEGMENT) is None
    assert first.writes.begin(SEGMENT, lambda: begun("a")) == begun("a")
    second = Started(files)
    assert second.writes.start == 2
    assert second.writes.begun(SEGMENT) == begun("a")
    assert second.writes.begin(SEGMENT, lambda: begun("b")) == begun("a")
    assert second.start.manifest.commit == 1
    with pytest.raises(FencedError):
        first.writes.check_fence()
    second.writes.check_fence()


def test_a_write_ends_once() -> None:
    files = Files()
    started = Started(files)
    started.writes.begin(SEGMENT, lambda: begun("a"))
    for _ in range(2):
        started.writes.end(SEGMENT, b"{}")
    last = Started(files).start.manifest
    assert last.commit == 2
    assert last.begun == {}
    assert last.written == {3: b"{}"}
    assert last.done == {3: ()}


def test_a_write_may_end_without_a_beginning() -> None:
    """It is skipped, since its target exists."""
    files = Files()
    Started(files).writes.end(SEGMENT, b"{}")
    assert Started(files).start.manifest.written == {3: b"{}"}
