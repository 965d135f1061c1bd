"""Tables of streams whose catalog or storage does not answer, and what they say once it does."""

import contextlib
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from beam_spark_runner.core.errors import TableError
from beam_spark_runner.recovery.begun_writes import ICEBERG
from beam_spark_runner.recovery.epoch_writes import EpochWrite, UnknownEpochWriteError
from beam_spark_runner.spark.driver.epoch_tables import EpochTable, epoch_table

LEFT = EpochWrite("Sink", "w", 7, ("f",), 3, ICEBERG, "41")
AWAY = ConnectionError("503 Service Unavailable")


def opened(catalog: Any) -> Any:
    """Return a write to a table, in a session with this catalog."""
    write = SimpleNamespace(table="lake.db.t", path="", format=ICEBERG, options={}, mode="append")
    session = SimpleNamespace(
        catalog=catalog,
        program=catalog,
        program_catalogs=contextlib.nullcontext,
        is_connect=False,
    )
    return SimpleNamespace(write=write, step="Sink", session=session, reason_for=str)


def catalog_with(*snapshots: tuple[int, int | None, str | None]) -> Any:
    """Return a session whose table has these snapshots: their numbers, parents and marks."""
    rows = [
        {
            "snapshot_id": number,
            "parent_id": parent,
            "summary": {"beam-spark-runner.write": mark} if mark else None,
        }
        for number, parent, mark in snapshots
    ]
    catalog = mock.MagicMock()
    catalog.catalog.tableExists.return_value = True
    ordered = catalog.table.return_value.orderBy.return_value
    ordered.collect.return_value = rows
    ordered.select.return_value.limit.return_value.collect.return_value = rows[-1:]
    return catalog


def without_answers(method: str) -> Any:
    """Return a session with a table, of which one method raises an error."""
    catalog = catalog_with((41, None, None))
    catalog.configure_mock(**{f"{method}.side_effect": AWAY})
    return catalog


@pytest.mark.parametrize("method", ["catalog.tableExists", "catalog.refreshTable", "table"])
def test_a_table_that_does_not_answer_raises_what_spark_raises(method: str) -> None:
    table = EpochTable(opened(without_answers(method)), ICEBERG)
    with pytest.raises(ConnectionError):
        table.state()
    with pytest.raises(ConnectionError):
        table.is_written(LEFT)


@pytest.mark.parametrize("method", ["catalog.tableExists", "sql"])
def test_a_start_says_that_the_catalog_does_not_answer(method: str) -> None:
    with pytest.raises(TableError, match=r"cannot look at .* now: 503 Service Unavailable"):
        epoch_table(opened(without_answers(method)))


def test_the_newest_snapshot_is_noted() -> None:
    table = EpochTable(opened(catalog_with((41, None, None), (42, 41, None))), ICEBERG)
    assert (table.state().kind, table.state().version) == (ICEBERG, "42")
    empty = EpochTable(opened(catalog_with()), ICEBERG)
    assert (empty.state().kind, empty.state().version) == (ICEBERG, "")


def test_a_table_that_does_not_exist_yet_has_no_rows() -> None:
    catalog = catalog_with()
    catalog.catalog.tableExists.return_value = False
    table = EpochTable(opened(catalog), ICEBERG)
    assert (table.state().kind, table.state().version) == (ICEBERG, "")
    assert not table.is_written(LEFT)


def test_snapshots_say_whether_the_rows_are_there() -> None:
    with_rows = catalog_with((41, None, None), (42, 41, LEFT.mark))
    assert EpochTable(opened(with_rows), ICEBERG).is_written(LEFT)
    without = catalog_with((41, None, None), (42, 41, "w-6"))
    assert not EpochTable(opened(without), ICEBERG).is_written(LEFT)


def test_only_snapshots_that_were_listed_can_have_been_removed() -> None:
    table = EpochTable(opened(catalog_with((43, 42, None))), ICEBERG)
    with pytest.raises(UnknownEpochWriteError, match="were removed"):
        table.is_written(LEFT)
    with pytest.raises(UnknownEpochWriteError, match="a table of delta, and is one of iceberg"):
        table.is_written(LEFT._replace(kind="delta"))
