"""Rows that are kept between tasks: in memory, and beyond a limit in a file."""

import errno
import os
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from beam_spark_runner.core.errors import RowStorageError
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.reports import error_of, failure_proto
from beam_spark_runner.engine.rows.row_memory import BlockFile, RowMemory
from beam_spark_runner.scheduling.attempts import Failure
from beam_spark_runner.state.spill import SpillFile
from tests.unit.harness.values.spill_files import spill_files


def rows(number: int, count: int = 10, dest: int = 5) -> pa.RecordBatch:
    values = [b"%d of batch %d" % (place, number) for place in range(count)]
    keys = [b"a", None] * (count // 2)
    return schema.batch_of(dest, np.arange(count, dtype=np.int64), None, keys, values)


BATCHES = [rows(0), rows(1, dest=schema.CONTROL), rows(2, dest=schema.REPORT), *map(rows, range(9))]
SIZE = rows(0).nbytes


def memory_of(share_bytes: int, folder: Path) -> RowMemory:
    return RowMemory(share_bytes, lambda: BlockFile(folder))


@pytest.mark.parametrize("share_bytes", [0, 2 * SIZE + 1, 1 << 20], ids=["none", "some", "all"])
def test_rows_come_back_as_they_were_as_often_as_they_are_read(
    share_bytes: int, tmp_path: Path
) -> None:
    memory = memory_of(share_bytes, tmp_path)
    first, second = memory.keep([iter(BATCHES), iter(BATCHES[::-1])])
    for _ in range(2):
        assert list(first) == BATCHES
        assert list(second) == BATCHES[::-1]


def test_small_batches_after_a_large_one_stay_behind_it(tmp_path: Path) -> None:
    batches = [rows(0), rows(1, count=100), rows(2, count=2)]
    (kept,) = memory_of(2 * SIZE, tmp_path).keep([batches])
    assert list(kept) == batches


def test_rows_in_a_file_are_read_when_they_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []
    read = SpillFile.read

    def noted(file: SpillFile, start: int, length: int) -> bytes:
        found.append(start)
        return read(file, start, length)

    monkeypatch.setattr(SpillFile, "read", noted)
    (kept,) = memory_of(2 * SIZE + 1, tmp_path).keep([BATCHES])
    batches = iter(kept)
    for taken, in_all in enumerate([0, 0, 1, 2, 3]):
        assert next(batches) == BATCHES[taken]
        assert len(found) == in_all


def test_memory_is_given_back_with_the_rows(tmp_path: Path) -> None:
    memory = memory_of(3 * SIZE, tmp_path)
    before = spill_files()
    kept = memory.keep([BATCHES[:3]])
    assert spill_files() == before
    other = memory.keep([BATCHES[:1]])
    assert spill_files() == before + 1
    del kept, other
    assert spill_files() == before
    kept = memory.keep([BATCHES[:3]])
    assert spill_files() == before
    assert list(kept[0]) == BATCHES[:3]


def test_the_file_is_in_the_folder_and_has_no_name(tmp_path: Path) -> None:
    file = BlockFile(tmp_path)
    block = file.write(BATCHES[0])
    targets = [os.readlink(f"/proc/self/fd/{each}") for each in existing_descriptors()]
    assert any(each.startswith(f"{tmp_path}/") for each in targets)
    assert list(tmp_path.iterdir()) == []
    assert file.read(block) == BATCHES[0]


def existing_descriptors() -> list[str]:
    return [each for each in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{each}")]


def test_a_full_disk_is_an_error_with_the_option_and_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, piece: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(RowStorageError) as caught:
        memory_of(0, tmp_path).keep([BATCHES])
    for part in ("No space left", str(tmp_path), "--group_memory_bytes", "--temp_location"):
        assert part in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_folder_that_has_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RowStorageError, match="No such file"):
        memory_of(0, tmp_path / "gone").keep([BATCHES])


def test_the_error_of_a_file_that_was_cut_passes_through_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pread", lambda descriptor, length, offset: b"")
    (kept,) = memory_of(0, tmp_path).keep([BATCHES])
    with pytest.raises(RowStorageError) as caught:
        list(kept)
    proto = failure_proto(caught.value)
    failure = Failure(
        step=proto.step,
        cause=proto.cause,
        traceback_text=proto.traceback,
        kind=proto.kind,
        raised=None,
    )
    assert str(error_of(failure)) == str(caught.value)
