"""An exchange in one process has the same rows in the same order, whether they fit in memory."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core.errors import RowStorageError
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.marks import marks_for
from beam_spark_runner.engine.rows.reports import report_row
from beam_spark_runner.engine.rows.row_memory import BlockFile, RowMemory
from beam_spark_runner.engine.rows.sorted_runs import merge_runs
from beam_spark_runner.engine.task import local_exchange
from beam_spark_runner.engine.task.local_exchange import Exchange
from tests.unit.engine.task.exchanges import exchanged, memory_of
from tests.unit.harness.values.spill_files import spill_files

ROUTES = st.lists(st.integers(0, 3) | st.integers(-(1 << 62), 1 << 62), max_size=40)


def program(partitions: int, *, is_grouped: bool = False, is_ordered: bool = False) -> Any:
    """Return as much of a level's program as an exchange looks at."""
    stage = SimpleNamespace(input=SimpleNamespace(is_grouped=is_grouped, is_ordered=is_ordered))
    return SimpleNamespace(partitions=partitions, stages=[stage], reads_marks_first=False)


def rows(routes: list[int], first: int = 0, value_bytes: int = 0) -> pa.RecordBatch:
    values = [b"%d" % (first + place) + b"x" * value_bytes for place in range(len(routes))]
    orders = np.arange(len(routes), dtype=np.int64)[::-1] // 2
    return schema.batch_of(5, np.array(routes, np.int64), orders, None, values)


def contents(partitions: list[list[pa.RecordBatch]]) -> list[list[dict[str, Any]]]:
    return [[row for batch in each for row in batch.to_pylist()] for each in partitions]


@given(
    st.lists(st.lists(ROUTES, max_size=12), max_size=5),
    st.integers(1, 4),
    st.sampled_from([(False, False), (True, False), (True, True)]),
    st.integers(0, 2_000),
)
def test_the_limit_changes_nothing(
    tasks: list[list[list[int]]], partitions: int, kind: tuple[bool, bool], share_bytes: int
) -> None:
    is_grouped, is_ordered = kind
    reader = program(partitions, is_grouped=is_grouped, is_ordered=is_ordered)
    emitted = []
    for number, task in enumerate(tasks):
        report = reports_pb2.TaskReport(partition=number)
        mark = reports_pb2.AttemptMark(attempt=number, run=7)
        batches = [rows(routes, 100 * place) for place, routes in enumerate(task)]
        emitted.append([*batches, marks_for(partitions, mark), report_row(report, partitions)])
    in_memory = contents(exchanged(reader, emitted))
    assert contents(exchanged(reader, emitted, memory_of(share_bytes))) == in_memory
    assert sum(map(len, in_memory)) == sum(len(batch) for task in emitted for batch in task)


def test_rows_are_written_while_they_come_and_read_while_they_are_taken(tmp_path: Path) -> None:
    memory = memory_of(1 << 20, tmp_path)
    ours = Exchange.before_level(program(2, is_grouped=True), memory)
    random = np.random.default_rng(1)
    before = pa.total_allocated_bytes()
    most = in_all = 0
    for _ in range(200):
        batch = rows(random.integers(-(1 << 62), 1 << 62, 500).tolist(), value_bytes=200)
        in_all += batch.nbytes
        ours.add([batch])
        most = max(most, pa.total_allocated_bytes() - before)
    partitions = ours.finish()
    count = 0
    for each in partitions:
        for found in each:
            count += len(found)
            most = max(most, pa.total_allocated_bytes() - before)
    assert count == 200 * 500
    assert in_all > 20 << 20
    assert most < 6 << 20


def test_few_runs_are_merged_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers: list[int] = []

    def noted(runs: Any, *, is_ordered: bool) -> Any:
        numbers.append(len(runs))
        return merge_runs(runs, is_ordered=is_ordered)

    monkeypatch.setattr(local_exchange, "merge_runs", noted)
    memory = memory_of(0, tmp_path)
    batches = [rows([number % 3], first=number) for number in range(50)]
    (found,) = contents(exchanged(program(1, is_grouped=True), [batches], memory))
    assert [int(row["value"]) for row in found] == sorted(range(50), key=lambda n: (n % 3, n))
    assert max(numbers) == memory.max_runs
    assert sum(numbers) < 150  # most rows are written twice: once as they come, and merged


def test_the_file_ends_with_the_exchange(tmp_path: Path) -> None:
    before = spill_files()
    ours = Exchange.before_level(program(2), memory_of(0, tmp_path))
    ours.add([rows([1, 2, 3])])
    partitions = ours.finish()
    assert spill_files() == before + 1
    del ours, partitions
    assert spill_files() == before


def test_small_exchanges_open_no_file(tmp_path: Path) -> None:
    before = spill_files()
    ours = Exchange.before_level(program(2), memory_of(1 << 20, tmp_path / "there is none"))
    ours.add([rows([1, 2, 3])])
    found = contents([list(each) for each in ours.finish()])
    assert sorted(row["route"] for each in found for row in each) == [1, 2, 3]
    assert spill_files() == before


def test_an_exchange_on_a_full_disk_fails_while_rows_come() -> None:
    class Full(BlockFile):
        def write(self, batch: pa.RecordBatch) -> Any:
            raise RowStorageError("/full", "No space left on device")

    ours = Exchange.before_level(program(2), RowMemory(100, Full))
    with pytest.raises(RowStorageError, match="/full: No space left"):
        ours.add([rows(list(range(100)))])
