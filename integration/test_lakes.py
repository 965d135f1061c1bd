"""Delta and Iceberg, on a Spark that they have packages for: ``make integration-tables``."""

import datetime
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.runner import PipelineState
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.core.errors import PipelineRefusedError, SparkJobError
from beam_spark_runner.spark.session.launch import start_classic
from beam_spark_runner.transforms import ReadFromSpark, WriteToSpark
from integration.lakes import KINDS, NEEDS_PACKAGES, VERSION, Table, conf_in, drop, overwrites
from integration.table_pipelines import (
    COUNT,
    SLOW_COUNT,
    check_cancelled,
    check_failed_append,
    check_failures,
    check_modes,
    files_of_data,
    in_and_out,
    wait_for_data,
    write_slowly,
)
from tests.harvest import PROCESS

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900), NEEDS_PACKAGES]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where tables of catalogs are."""
    return tmp_path_factory.mktemp("lakes")


@pytest.fixture(scope="module")
def spark(home: Path) -> Iterator[Any]:
    session = start_classic("local[2]", "lakes", conf_in(home))
    session.sql("CREATE NAMESPACE IF NOT EXISTS lake.db")
    yield session
    session.stop()


@pytest.fixture(params=KINDS)
def table(
    spark: Any, home: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Table]:
    drop(spark)
    yield Table(spark, home, tmp_path, request.param)
    drop(spark)


@pytest.fixture
def overwritable(table: Table) -> Table:
    """A table that Spark can overwrite."""
    if not overwrites(table.kind):
        pytest.skip("this Spark overwrites no Delta table by its name")
    return table


def test_every_mode(overwritable: Table) -> None:
    check_modes(overwritable.target)


def test_a_write_is_one_commit(overwritable: Table) -> None:
    overwritable.target.write(range(40))
    assert len(overwritable.commits()) == 1
    overwritable.target.write(range(40, 80), mode="append")
    assert len(overwritable.commits()) == 2
    overwritable.target.write([], mode="ignore", is_skipped=True)
    assert len(overwritable.commits()) == 2
    overwritable.target.write(range(3), mode="overwrite")
    assert overwritable.target.ids() == [0, 1, 2]


def test_a_failed_pipeline_writes_nothing(table: Table) -> None:
    table.target.write(range(5))
    check_failures(table.target)
    check_failed_append(table.target)
    assert len(table.commits()) == 1


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_cancelled_write_leaves_the_table_as_it_was(table: Table, mode: str) -> None:
    if mode == "overwrite" and not overwrites(table.kind):
        pytest.skip("this Spark overwrites no Delta table by its name")
    table.target.write(range(5))
    check_cancelled(table.target, table.folder, mode)
    assert len(table.commits()) == 1
    table.target.write([5], mode="append")
    assert table.target.ids() == [*range(6)]


def test_readers_see_all_of_a_write_or_nothing(overwritable: Table) -> None:
    target = overwritable.target
    target.write(range(5))
    files = files_of_data(overwritable.folder)
    result = target.start(lambda p: write_slowly(p, target, "overwrite"))
    wait_for_data(overwritable.folder, files, result)
    seen = [target.load().count()]
    while not PipelineState.is_terminal(result.state):
        seen.append(target.load().count())
    assert result.state == PipelineState.DONE
    assert seen[0] == 5
    assert {*seen, target.load().count()} == {5, SLOW_COUNT}


def test_partitions_are_found_and_pruned(table: Table, spark: Any) -> None:
    table.target.write(range(30), partition_by="part")
    table.target.write(range(30, 33), mode="append", partition_by="part")
    by_part: dict[str, list[Path]] = {}
    for file in files_of_data(table.folder):
        by_part.setdefault(file.parent.name, []).append(file)
    assert by_part.keys() == {"part=0", "part=1", "part=2"}
    for file in (*by_part["part=0"], *by_part["part=2"]):  # what is not read need not be there
        file.write_bytes(b"no parquet")
    spark.catalog.clearCache()
    table.target.check_read(range(1, 33, 3), where="part = 1")


def test_an_append_with_other_columns_is_refused(table: Table) -> None:
    table.target.write(range(3))

    def build(p: beam.Pipeline) -> None:
        rows = p | beam.Create([{"id": 1, "part": "x"}])
        _ = rows | WriteToSpark(schema="id BIGINT, part STRING", **append(table))

    with pytest.raises(PipelineRefusedError) as raised:
        table.target.run(build)
    assert re.search(r"≠  part +STRING +INT$", str(raised.value), re.MULTILINE)
    assert re.search(r"≠  price +\(missing\) +DECIMAL", str(raised.value))
    assert len(table.commits()) == 1


def append(table: Table) -> dict[str, Any]:
    return {**table.target.arguments, "mode": "append"}


def test_narrower_integers_are_appended(table: Table) -> None:
    table.target.write(range(3))
    schema = "id INT, part SMALLINT, price DECIMAL(4,1)"

    def build(p: beam.Pipeline) -> None:
        rows = p | beam.Create([{"id": 3, "part": 0, "price": Decimal("3.5")}])
        _ = rows | WriteToSpark(schema=schema, **append(table))

    table.target.run(build)
    table.target.check_read(range(4))


def test_an_overwrite_with_another_schema(overwritable: Table) -> None:
    overwritable.target.write(range(3))

    def overwrite(**options: Any) -> None:
        def build(p: beam.Pipeline) -> None:
            rows = p | beam.Create([{"id": 9, "name": "nine"}])
            _ = rows | WriteToSpark(
                schema="id BIGINT, name STRING",
                **{**overwritable.target.arguments, "mode": "overwrite", "options": options},
            )

        overwritable.target.run(build)

    if overwritable.format == "delta":
        with pytest.raises(
            SparkJobError, match=r"With options=\{'overwriteSchema': True\} the write"
        ):
            overwrite()
        assert overwritable.target.ids() == [0, 1, 2]
        overwrite(overwriteSchema=True)
    elif "table" in overwritable.target.arguments:
        overwrite()
    else:  # a table without a catalog is not replaced
        with pytest.raises(SparkJobError, match="name"):
            overwrite()
        assert overwritable.target.ids() == [0, 1, 2]
        return
    assert [tuple(row) for row in overwritable.target.load().collect()] == [(9, "nine")]


def test_earlier_versions_are_read(table: Table) -> None:
    table.target.write(range(3))
    is_old = table.format == "iceberg" and VERSION < (4, 0)
    option = "snapshot-id" if is_old else "versionAsOf"
    (first,) = table.commits()
    table.target.write(range(3, 6), mode="append")
    table.target.check_read(range(6))
    table.target.check_read(range(3), options={option: first})


TYPES = """
SELECT id, id % 2 = 0 AS b, CAST(id AS INT) AS i32, CAST(id AS FLOAT) / 2 AS f,
       CAST(id AS DOUBLE) / 3 AS d, CAST(id AS DECIMAL(20,4)) AS dec,
       IF(id = 1, NULL, 'größe') AS s, CAST('xy' AS BINARY) AS raw, DATE'2026-01-01' AS day,
       TIMESTAMP'2026-01-02 03:04:05.000006+02:00' AS at,
       TIMESTAMP_NTZ'2026-01-02 03:04:05.000006' AS local,
       array(1, NULL, 3) AS arr, map('k', CAST(NULL AS BIGINT), 'l', id) AS m,
       named_struct('x', id, 'y', array(named_struct('z', 'in'))) AS st
FROM range(2)
"""
"""What both formats have; Iceberg has no other integers, nor intervals."""


def test_every_type(table: Table, spark: Any) -> None:
    schema = spark.sql(TYPES).schema.simpleString().removeprefix("struct<")[:-1]
    expected = [
        beam.Row(
            id=n,
            b=n % 2 == 0,
            i32=n,
            f=n / 2,
            d=n / 3,
            dec=Decimal(n),
            s=None if n == 1 else "größe",
            raw=b"xy",
            day=datetime.date(2026, 1, 1),
            at=Timestamp.from_rfc3339("2026-01-02T01:04:05.000006Z"),
            local=datetime.datetime(2026, 1, 2, 3, 4, 5, 6),
            arr=[1, None, 3],
            m={"k": None, "l": n},
            st=beam.Row(x=n, y=[beam.Row(z="in")]),
        )
        for n in range(2)
    ]

    def write(p: beam.Pipeline) -> None:
        rows = p | ReadFromSpark(query=TYPES)
        _ = rows | WriteToSpark(schema=schema, **table.target.arguments)

    def read(p: beam.Pipeline) -> None:
        assert_that(p | ReadFromSpark(**table.target.arguments), equal_to(expected))

    table.target.run(write)
    table.target.run(read)
    as_json = [
        sorted(row[0] for row in each.selectExpr("to_json(struct(*))").collect())
        for each in (table.target.load(), spark.sql(TYPES))
    ]
    assert [*map(json.loads, as_json[0])] == [*map(json.loads, as_json[1])]


@pytest.mark.parametrize("kind", ["delta path", "iceberg table"])
def test_sdk_harnesses_in_processes(spark: Any, home: Path, tmp_path: Path, kind: str) -> None:
    drop(spark)
    check_modes(Table(spark, home, tmp_path, kind, PROCESS).target)


def test_from_one_to_the_other_by_a_query(spark: Any, tmp_path: Path) -> None:
    """And into a catalog that the program has configured in its session."""
    drop(spark)
    spark.range(COUNT).write.format("delta").saveAsTable("numbers")
    later = "spark.sql.catalog.later"
    spark.conf.set(later, "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"{later}.type", "hadoop")
    spark.conf.set(f"{later}.warehouse", str(tmp_path))
    spark.sql("CREATE NAMESPACE later.db")
    in_and_out(
        SparkPortableRunner(spark),
        read={"query": "SELECT id FROM numbers WHERE id >= 0"},
        write={"table": "later.db.evens"},
    )
    assert spark.table("later.db.evens").count() == COUNT // 2


def test_what_a_pipeline_reads_may_be_overwritten(overwritable: Table) -> None:
    target = overwritable.target
    target.write(range(6))

    def build(p: beam.Pipeline) -> None:
        rows = p | ReadFromSpark(**target.arguments, where="id >= 3")
        _ = rows | WriteToSpark(**{**target.arguments, "mode": "overwrite"})

    target.run(build)
    target.check_read([3, 4, 5])
