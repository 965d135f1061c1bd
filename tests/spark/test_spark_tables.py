"""``ReadFromSpark`` and ``WriteToSpark`` on a local Spark."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
import pytest

from beam_spark_runner.core.errors import BundleFailedError, PipelineRefusedError
from beam_spark_runner.transforms import ReadFromSpark, SparkWriteResult, WriteToSpark
from tests.harvest import PROCESS, harvest, run

pytestmark = pytest.mark.spark

COUNT = 1000


@pytest.fixture
def folder(spark_session: Any, tmp_path: Path) -> Path:
    """A folder with Parquet files of ids and names in ``in``."""
    frame = spark_session.range(COUNT).selectExpr("id", "concat('n', id) as name")
    frame.repartition(4).write.parquet(str(tmp_path / "in"))
    return tmp_path


def pairs(rows: Any) -> Any:
    return rows | beam.Map(lambda row: (row.id, row.name))


def stored(spark: Any, path: Path, format_: str = "parquet", **options: Any) -> list[Any]:
    return sorted(
        map(tuple, spark.read.format(format_).options(**options).load(str(path)).collect())
    )


@pytest.mark.parametrize(
    "flags",
    [(), pytest.param(PROCESS, marks=[pytest.mark.grpc, pytest.mark.rare])],
    ids=["embedded", "process"],
)
def test_parquet_in_and_out(spark_session: Any, folder: Path, flags: tuple[str, ...]) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        rows = p | ReadFromSpark(path=str(folder / "in"))
        evens = rows | beam.Filter(lambda row: row.id % 2 == 0)
        return {"read": pairs(rows), "written": evens | WriteToSpark(path=str(folder / "out"))}

    found = harvest(spark_session, build, *flags)
    assert found["read"] == [(n, f"n{n}") for n in range(COUNT)]
    (result,) = found["written"]
    assert (result.written, result.rows, result.target) == (True, COUNT // 2, str(folder / "out"))
    files = {str(each) for each in (folder / "out").glob("*.parquet")}
    assert {each.removeprefix("file://") for each in result.files} == files
    assert stored(spark_session, folder / "out") == [(n, f"n{n}") for n in range(0, COUNT, 2)]


def test_rows_keep_their_schema_behind_an_exchange(spark_session: Any, folder: Path) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        rows = p | ReadFromSpark(path=str(folder / "in"), where="id < 10") | beam.Reshuffle()
        grouped = rows | beam.GroupBy(lambda row: row.id % 2).aggregate_field("id", sum, "total")
        return {"read": pairs(rows), "grouped": grouped | beam.Map(lambda row: row.total)}

    found = harvest(spark_session, build)
    assert found["read"] == [(n, f"n{n}") for n in range(10)]
    assert found["grouped"] == [20, 25]


def test_the_tasks_are_those_of_the_table(spark_session: Any, folder: Path) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        frame = spark_session.range(0, COUNT, 1, 7)
        return {"read": p | ReadFromSpark(dataframe=frame) | beam.Map(lambda row: row.id)}

    found = harvest(spark_session, build)
    assert found["read"] == list(range(COUNT))
    assert found.partitions("read") == set(range(7))


def test_conditions_and_columns_reach_the_files(spark_session: Any, tmp_path: Path) -> None:
    frame = spark_session.range(10).selectExpr("id", "id % 5 as part", "'x' as other")
    frame.write.partitionBy("part").parquet(str(tmp_path / "in"))
    for gone in range(1, 5):  # what is not read need not be there
        for file in (tmp_path / "in" / f"part={gone}").glob("*.parquet"):
            file.write_bytes(b"no parquet")

    def build(p: beam.Pipeline) -> dict[str, Any]:
        rows = p | ReadFromSpark(
            path=str(tmp_path / "in"),
            schema="twice BIGINT",
            where="part = 0",
            columns=["id * 2 AS twice"],
        )
        return {"read": rows | beam.Map(lambda row: row.as_dict()["twice"])}

    assert harvest(spark_session, build)["read"] == [0, 10]


@pytest.mark.rare
def test_several_tables_and_other_sources_in_one_job(spark_session: Any, folder: Path) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        first = p | "first" >> ReadFromSpark(path=str(folder / "in"))
        second = p | "second" >> ReadFromSpark(query="SELECT 1 AS id, 'one' AS name")
        none = p | "none" >> ReadFromSpark(query="SELECT 1 AS id, 'one' AS name WHERE false")
        made = p | beam.Create([(0, "made")])
        together = (
            pairs(first),
            second | "pairs" >> beam.Map(lambda row: (row.id, row.name)),
            made,
        )
        nothing = none | "nothing" >> beam.Map(lambda row: (row.id, row.name))
        return {
            "all": (*together, nothing) | beam.Flatten(),
            "count": nothing | beam.combiners.Count.Globally(),
        }

    found = harvest(spark_session, build)
    expected = [*((n, f"n{n}") for n in range(COUNT)), (1, "one"), (0, "made")]
    assert found["all"] == sorted(expected)
    assert found["count"] == [0]


@pytest.mark.rare
def test_an_empty_table_alone(spark_session: Any, tmp_path: Path) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        rows = p | ReadFromSpark(query="SELECT id FROM range(0)")
        return {
            "count": rows | beam.combiners.Count.Globally(),
            "written": rows | WriteToSpark(path=str(tmp_path / "out")),
        }

    found = harvest(spark_session, build)
    assert found["count"] == [0]
    assert [result.rows for result in found["written"]] == [0]
    assert stored(spark_session, tmp_path / "out") == []
    assert spark_session.read.parquet(str(tmp_path / "out")).columns == ["id"]


class Id(NamedTuple):
    id: int


def test_tables_without_partitions(spark_session: Any, tmp_path: Path) -> None:
    """Spark runs no task for them, so that no attempt of one is reported."""
    days = spark_session.sql("SELECT id, 1 AS day FROM range(5)")
    days.write.partitionBy("day").parquet(str(tmp_path / "in"))

    def build(p: beam.Pipeline) -> dict[str, Any]:
        query = "SELECT id FROM VALUES (1), (2) AS numbers(id) WHERE id > 3"
        nothing = p | "query" >> ReadFromSpark(query=query)
        pruned = p | "pruned" >> ReadFromSpark(path=str(tmp_path / "in"), where="day = 2")
        pairs = nothing | beam.Map(lambda row: (row.id, row.id))
        main = p | beam.Create([3])
        return {
            "looked up": main | beam.Map(lambda n, some: (n, some), beam.pvalue.AsDict(pairs)),
            "written": nothing
            | "row" >> beam.Map(lambda row: Id(row.id)).with_output_types(Id)
            | "write" >> WriteToSpark(path=str(tmp_path / "out")),
            "written as it is": pruned | "copy" >> WriteToSpark(path=str(tmp_path / "copy")),
            "mapped": pruned | "map" >> beam.Map(lambda row: row.id),
        }

    found = harvest(spark_session, build)
    assert found["looked up"] == [(3, {})]
    assert found["mapped"] == []
    assert [result.rows for result in found["written"] + found["written as it is"]] == [0, 0]
    assert stored(spark_session, tmp_path / "out") == []
    assert stored(spark_session, tmp_path / "copy") == []


class CountRows(beam.DoFn):  # type: ignore[misc]
    """Sees whole batches."""

    def process_batch(self, batch: pa.RecordBatch) -> Iterator[list[int]]:
        yield [batch.num_rows]

    def infer_output_type(self, input_type: Any) -> Any:
        return int

    def get_output_batch_type(self, input_type: Any) -> Any:
        return list[int]


def test_batches_for_batch_dofns(spark_session: Any, folder: Path) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        rows = p | ReadFromSpark(path=str(folder / "in"), batches=True)
        return {"rows": pairs(rows), "sizes": rows | beam.ParDo(CountRows())}

    found = harvest(spark_session, build)
    assert found["rows"] == [(n, f"n{n}") for n in range(COUNT)]
    assert sum(found["sizes"]) == COUNT
    assert len(found["sizes"]) <= 4


class Sale(NamedTuple):
    shop: str
    amount: int


@pytest.mark.parametrize(
    "format_",
    [*(pytest.param(each, marks=pytest.mark.rare) for each in ("orc", "csv", "parquet")), "json"],
)
def test_files(spark_session: Any, tmp_path: Path, format_: str) -> None:
    options = {"header": True} if format_ == "csv" else {}
    sales = [Sale(f"s{n % 3}", n) for n in range(30)]

    def write(p: beam.Pipeline) -> dict[str, Any]:
        made = p | beam.Create(sales).with_output_types(Sale)
        out = WriteToSpark(
            path=str(tmp_path / "out"), format=format_, options=options, partition_by="shop"
        )
        return {"written": made | out}

    (result,) = harvest(spark_session, write)["written"]
    assert result.rows == 30
    assert {Path(file).parent.name for file in result.files} == {"shop=s0", "shop=s1", "shop=s2"}

    def read(p: beam.Pipeline) -> dict[str, Any]:
        schema = "amount BIGINT, shop STRING"
        rows = p | ReadFromSpark(
            path=str(tmp_path / "out"), format=format_, options=options, schema=schema
        )
        return {"read": rows | beam.Map(lambda row: Sale(row.shop, row.amount))}

    assert harvest(spark_session, read)["read"] == sorted(sales)


@pytest.fixture
def table(spark_session: Any) -> Iterator[str]:
    """The name of a table that does not exist; it is dropped at the end."""
    spark_session.sql("DROP TABLE IF EXISTS beam_sales")
    yield "beam_sales"
    spark_session.sql("DROP TABLE IF EXISTS beam_sales")


def write_sales(spark: Any, count: int, **arguments: Any) -> SparkWriteResult:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        made = p | beam.Create([{"shop": "s", "amount": n} for n in range(count)])
        schema = arguments.pop("schema", "shop STRING, amount INT")
        return {"written": made | WriteToSpark(schema=schema, **arguments)}

    (result,) = harvest(spark, build)["written"]
    assert isinstance(result, SparkWriteResult)
    return result


def test_modes_on_a_catalog_table(spark_session: Any, table: str) -> None:
    def rows() -> int:
        return int(spark_session.table(table).count())

    assert write_sales(spark_session, 3, table=table).rows == 3
    assert rows() == 3
    appended = write_sales(spark_session, 2, table=table, mode="append")
    assert (appended.rows, rows()) == (2, 5)
    assert appended.files
    assert not write_sales(spark_session, 9, table=table, mode="ignore").written
    assert rows() == 5
    with pytest.raises(PipelineRefusedError, match="the table beam_sales exists already"):
        write_sales(spark_session, 1, table=table)
    assert write_sales(spark_session, 1, table=table, mode="overwrite").rows == 1
    assert rows() == 1

    def read(p: beam.Pipeline) -> dict[str, Any]:
        return {"read": p | ReadFromSpark(table=table) | beam.Map(lambda row: row.amount)}

    assert harvest(spark_session, read)["read"] == [0]


@pytest.mark.rare
def test_files_of_another_format_are_overwritten(spark_session: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "out")
    assert write_sales(spark_session, 3, path=path).rows == 3
    result = write_sales(spark_session, 2, path=path, format="orc", mode="overwrite")
    assert result.rows == 2
    assert all(file.endswith(".orc") for file in result.files)
    assert spark_session.read.orc(path).count() == 2
    with pytest.raises(PipelineRefusedError, match="exists already, and the mode is error"):
        write_sales(spark_session, 1, path=path, format="parquet")


def test_appended_rows_fit_or_are_refused_before_anything_runs(
    spark_session: Any, table: str
) -> None:
    spark_session.sql(f"CREATE TABLE {table} (amount BIGINT, shop STRING) USING parquet")
    write_sales(spark_session, 2, table=table, mode="append")
    assert spark_session.table(table).selectExpr("sum(amount)").first()[0] == 1
    with pytest.raises(PipelineRefusedError) as raised:
        write_sales(
            spark_session, 1, table=table, mode="append", schema="shop STRING, amount STRING"
        )
    assert "≠  amount  STRING    BIGINT" in str(raised.value)
    assert "the rows  the target" in str(raised.value)


class Priced(NamedTuple):
    price: Decimal


def test_an_overwrite_keeps_the_types_of_a_table_unless_a_schema_is_given(
    spark_session: Any, table: str
) -> None:
    def type_after(**arguments: Any) -> str:
        def build(p: beam.Pipeline) -> dict[str, Any]:
            rows = p | beam.Create([Priced(Decimal("1.50"))]).with_output_types(Priced)
            return {"w": rows | WriteToSpark(table=table, mode="overwrite", **arguments)}

        harvest(spark_session, build)
        (row,) = spark_session.table(table).collect()
        assert tuple(row) == (Decimal("1.50"),)
        return str(spark_session.table(table).schema.simpleString())

    spark_session.sql(f"CREATE TABLE {table} (price DECIMAL(10,2)) USING parquet")
    assert type_after() == "struct<price:decimal(10,2)>"
    assert type_after(schema="price DECIMAL(7,3)") == "struct<price:decimal(7,3)>"
    spark_session.sql(f"DROP TABLE {table}")
    spark_session.sql(f"CREATE TABLE {table} (other DECIMAL(10,2)) USING parquet")
    assert type_after() == "struct<price:decimal(38,18)>"


def fail(row: Any) -> Any:
    raise ValueError("user code failed")


@pytest.mark.parametrize("fails", [pytest.param("upstream", marks=pytest.mark.rare), "elsewhere"])
def test_a_failed_pipeline_writes_nothing(spark_session: Any, folder: Path, fails: str) -> None:
    def build(p: beam.Pipeline) -> None:
        rows = p | ReadFromSpark(path=str(folder / "in"))
        if fails == "elsewhere":
            ids = rows | beam.combiners.Count.Globally()
            # In a later segment than the rows that are written.
            rows | "fails" >> beam.Map(lambda row, _: fail(row), beam.pvalue.AsSingleton(ids))
        else:
            rows |= beam.Map(lambda row: row if row.id != 77 else fail(row)).with_output_types(
                rows.element_type
            )
        rows | WriteToSpark(path=str(folder / "out"))

    with pytest.raises(BundleFailedError, match="user code failed"):
        run(spark_session, build)
    assert not (folder / "out").exists()


def test_steps_after_a_write_see_its_rows(spark_session: Any, folder: Path) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        made = p | beam.Create([Sale("a", 1), Sale("b", 2)]).with_output_types(Sale)
        result = made | "first" >> WriteToSpark(path=str(folder / "first"))

        def look(result: SparkWriteResult) -> Sale:
            files = [file for file in Path(result.target).iterdir() if file.suffix == ".parquet"]
            return Sale("files", len(files) - len(result.files) + result.rows)

        again = result | beam.Map(look).with_output_types(Sale)
        return {"second": again | "second" >> WriteToSpark(path=str(folder / "second"))}

    harvest(spark_session, build)
    assert stored(spark_session, folder / "second") == [("files", 2)]


@pytest.mark.rare
def test_long_values(spark_session: Any, folder: Path) -> None:
    def build(p: beam.Pipeline) -> None:
        rows = p | ReadFromSpark(path=str(folder / "in"), where="id < 3")
        longer = rows | beam.Map(lambda row: {"id": row.id, "name": row.name * 1_000_000})
        longer | WriteToSpark(path=str(folder / "out"), schema="id BIGINT, name STRING")

    run(spark_session, build)
    assert stored(spark_session, folder / "out") == [(n, f"n{n}" * 1_000_000) for n in range(3)]
