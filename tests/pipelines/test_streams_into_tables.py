"""Streams into tables: each row is there once, whenever the driver dies."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import apache_beam as beam
import pytest
from apache_beam.testing.test_stream import TestStream as Stream

from beam_spark_runner.core.errors import BundleFailedError, SparkJobError
from beam_spark_runner.job.files.shard_places import existing_storage
from beam_spark_runner.recovery.commit import newest
from beam_spark_runner.recovery.epoch_writes import TableDatabaseError
from beam_spark_runner.recovery.manifest import Manifest, epochs_of
from beam_spark_runner.savepoint import main
from beam_spark_runner.scheduling import patience
from beam_spark_runner.transforms import WriteToSpark
from tests.harvest import PROCESS, run
from tests.pipelines.dying_drivers import Deaths, Died
from tests.pipelines.tables_in_memory import TablesInMemory, spark_less

EPOCHS, OF_EPOCH = 4, 3
IDS = [*range(EPOCHS * OF_EPOCH)]
DIES = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


@pytest.fixture(params=["delta", "iceberg", "jdbc"])
def tables(request: pytest.FixtureRequest) -> Iterator[TablesInMemory]:
    made = TablesInMemory(request.param)
    with made.serving():
        yield made


def numbers(p: beam.Pipeline, fatal: int | None = None) -> Any:
    """Give some numbers in each epoch; user code fails at one of them."""
    events = Stream().with_output_types(int)
    for epoch in range(EPOCHS):
        events.add_elements([*range(epoch * OF_EPOCH, (epoch + 1) * OF_EPOCH)])
    read = p | events.advance_watermark_to_infinity()
    return read | beam.Reshuffle() | beam.Map(_row_of, fatal)


def _row_of(number: int, fatal: int | None) -> dict[str, int]:
    if number == fatal:
        raise ValueError("dies here")
    return {"id": number}


def sink() -> WriteToSpark:
    return WriteToSpark(table="numbers", format="delta", mode="append", schema="id BIGINT")


def into_table(fatal: int | None = None) -> Callable[[beam.Pipeline], Any]:
    return lambda p: numbers(p, fatal) | "Sink" >> sink()


def run_here(build: Callable[[beam.Pipeline], Any], *flags: Any) -> None:
    run(None, build, *spark_less("--parallelism=2", *flags))  # type: ignore[arg-type]


def last_manifest(folder: Path) -> Manifest:
    (last,) = newest(existing_storage(str(folder), "checkpoint_dir"), epochs_of("main"))
    return last


def test_each_epoch_is_one_commit(tables: TablesInMemory, tmp_path: Path) -> None:
    run_here(into_table(), f"--checkpoint_dir={tmp_path}")
    assert tables.ids() == IDS
    assert len(tables.commits) == EPOCHS
    last = last_manifest(tmp_path)
    assert last.is_final
    assert last.unwritten == ()
    run_here(into_table(), f"--checkpoint_dir={tmp_path}")  # nothing is left to do
    assert tables.ids() == IDS


def test_an_epoch_that_fails_writes_nothing(tables: TablesInMemory, tmp_path: Path) -> None:
    with pytest.raises(BundleFailedError, match="dies here"):
        run_here(into_table(fatal=OF_EPOCH + 1), f"--checkpoint_dir={tmp_path}")
    assert tables.ids() == IDS[:OF_EPOCH]
    run_here(into_table(), f"--checkpoint_dir={tmp_path}")
    assert tables.ids() == IDS


@DIES
@pytest.mark.parametrize("has_written", [False, True])
def test_drivers_die_around_each_write(
    tables: TablesInMemory, tmp_path: Path, has_written: bool
) -> None:
    """The first start dies at the first write, the next one at the second write, and so on."""
    tables.has_written = has_written
    for tables.dies_at in range(EPOCHS):
        with pytest.raises(Died):
            run_here(into_table(), f"--checkpoint_dir={tmp_path}")
    tables.dies_at = None
    run_here(into_table(), f"--checkpoint_dir={tmp_path}")
    assert tables.ids() == IDS
    assert len(tables.commits) == EPOCHS
    assert last_manifest(tmp_path).unwritten == ()


def dies_and_continues(tables: TablesInMemory, folder: Path, at: int | None) -> int:
    """Die at a change of the checkpoint, if there is one; return how many changes there were."""
    folder.mkdir()
    deaths = tables.deaths = Deaths(folder, at)
    with deaths.striking():
        if at is None:
            run_here(into_table(), f"--checkpoint_dir={folder}")
        else:
            with pytest.raises(Died):
                run_here(into_table(), f"--checkpoint_dir={folder}")
    tables.deaths = None
    run_here(into_table(), f"--checkpoint_dir={folder}")
    return len(deaths.changes)


@DIES
@pytest.mark.rare
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["delta", "iceberg", "jdbc"])
def test_drivers_die_at_each_change_of_the_checkpoint(tmp_path: Path, kind: str) -> None:
    def check(name: str, at: int | None) -> int:
        made = TablesInMemory(kind)
        with made.serving():
            changes = dies_and_continues(made, tmp_path / name, at)
        assert made.ids() == IDS, at
        return changes

    for at in range(check("all", None)):
        check(str(at), at)


def test_a_start_from_a_savepoint_writes_what_it_computes(
    tables: TablesInMemory, tmp_path: Path
) -> None:
    """The table was taken back to the savepoint; what it has of it is not written again."""
    checkpoint, savepoint = tmp_path / "checkpoint", tmp_path / "savepoint"
    with pytest.raises(BundleFailedError):
        run_here(into_table(fatal=2 * OF_EPOCH), f"--checkpoint_dir={checkpoint}")
    main([f"--checkpoint_dir={checkpoint}", f"--savepoint_path={savepoint}"])
    commits = list(tables.commits)
    assert last_manifest(savepoint).unwritten != ()
    run_here(into_table(), f"--checkpoint_dir={checkpoint}")
    assert tables.ids() == IDS
    tables.commits = commits
    flags = f"--checkpoint_dir={tmp_path / 'other'}", f"--savepoint_path={savepoint}"
    run_here(into_table(), *flags)
    assert tables.ids() == IDS


def test_a_step_is_removed_by_name_after_its_writes(tables: TablesInMemory, tmp_path: Path) -> None:
    with pytest.raises(BundleFailedError):
        run_here(into_table(fatal=2 * OF_EPOCH), f"--checkpoint_dir={tmp_path}")
    mapping = '--transform_name_mapping={"Sink": ""}'
    run_here(numbers, f"--checkpoint_dir={tmp_path}", mapping)
    assert tables.ids() == IDS[: 2 * OF_EPOCH]
    assert last_manifest(tmp_path).unwritten == ()


def test_a_table_that_cannot_be_looked_at_fails_the_run_until_it_can(
    tables: TablesInMemory, tmp_path: Path
) -> None:
    """Nothing of the epoch is committed, so that the same command runs it again."""
    away = mock.patch.object(tables, "state", side_effect=ConnectionError("the catalog is away"))
    with away, pytest.raises(SparkJobError, match="the catalog is away"):
        run_here(into_table(), f"--checkpoint_dir={tmp_path}")
    assert tables.ids() == []
    run_here(into_table(), f"--checkpoint_dir={tmp_path}")
    assert tables.ids() == IDS


@pytest.mark.parametrize("tables", ["jdbc"], indirect=True)
@pytest.mark.parametrize("has_written", [False, True])
def test_a_database_that_restarts_is_waited_for(
    tables: TablesInMemory, monkeypatch: pytest.MonkeyPatch, has_written: bool
) -> None:
    """It is asked what it has, since a connection may be lost while a transaction commits."""
    monkeypatch.setattr(patience, "_FIRST_S", 0)
    append = tables.append
    failures = [TableDatabaseError("the table numbers", "it restarts")] * 2

    def failing_append(*arguments: Any) -> None:
        if has_written and failures:
            append(*arguments)
        if failures:
            raise failures.pop()
        append(*arguments)

    monkeypatch.setattr(tables, "append", failing_append)
    run_here(into_table())
    assert not failures
    assert tables.ids() == IDS


@DIES
def test_the_last_rows_are_written_before_it_is_said_that_nothing_is_left(
    tables: TablesInMemory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The last epoch with rows is the final one of a pipeline that is drained by its sources."""
    build = lambda p: p | beam.Create([{"id": 1}]) | "Sink" >> sink()  # noqa: E731
    tables.dies_at = 0
    flags = f"--checkpoint_dir={tmp_path}", "--streaming"
    with pytest.raises(Died):
        run_here(build, *flags)
    left = last_manifest(tmp_path)
    assert left.is_final
    assert left.unwritten != ()
    tables.dies_at = None
    caplog.clear()
    run_here(build, *flags)
    assert tables.ids() == [1]
    assert "nothing is left to do" not in caplog.text
    run_here(build, *flags)
    assert "nothing is left to do" in caplog.text


def test_rows_that_do_not_fit_are_dead_letters(tables: TablesInMemory, tmp_path: Path) -> None:
    out = tmp_path / "bad"

    def build(p: beam.Pipeline) -> None:
        rows = numbers(p) | "Spoil" >> beam.Map(_spoiled)
        _, bad = rows | sink().with_exception_handling()
        bad | beam.Map(_noted, str(out))

    out.mkdir()
    run_here(build)
    assert tables.ids() == [id_ for id_ in IDS if id_ % 5]
    assert sorted(int(file.name) for file in out.iterdir()) == [id_ for id_ in IDS if not id_ % 5]


def _spoiled(row: dict[str, Any]) -> dict[str, Any]:
    return row if row["id"] % 5 else {"id": f"bad {row['id']}"}


def _noted(letter: Any, folder: str) -> None:
    Path(folder, letter[0]["id"].removeprefix("bad ")).touch()


@pytest.mark.grpc
@pytest.mark.parametrize("tables", ["delta"], indirect=True)
def test_rows_from_an_sdk_harness(tables: TablesInMemory) -> None:
    run_here(into_table(), *PROCESS)
    assert tables.ids() == IDS
