"""How data sets are named."""

from dataclasses import replace
from typing import Any

import pytest

from beam_spark_runner.core.table_steps import READ_TABLE, WRITE_TABLE, TableRead, TableWrite
from beam_spark_runner.graph.model import Graph
from beam_spark_runner.observing.datasets import Dataset, Datasets, reported, tables_in
from tests.golden.notation import parse


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (("filesystem:", "localhost.", "/tmp/", "in.txt"), Dataset("file", "/tmp/in.txt")),
        (("filesystem:", "localhost.", "/tmp/", "*"), Dataset("file", "/tmp/*")),
        (("s3:", "my.bucket.", "a/", "b"), Dataset("s3://my.bucket", "a/b")),
        (("gcs:", "bucket"), Dataset("gs://bucket", "/")),
        (("kafka:", "one:9092,two:9092.", "orders"), Dataset("kafka://one:9092", "orders")),
        (("bigquery:", "project.", "set.", "table"), Dataset("bigquery", "project.set.table")),
        (("pubsub:", "topic:", "project.", "t"), Dataset("pubsub", "topic:project.t")),
    ],
)
def test_names_that_sources_and_sinks_report(parts: tuple[str, ...], expected: Dataset) -> None:
    assert reported([parts]) == {expected}


def test_a_name_without_a_place_is_left_out() -> None:
    assert reported([("filesystem:",), ()]) == frozenset()


def graph_with(read: TableRead, write: TableWrite) -> Graph:
    graph = parse(
        """
        Sales: read_table() -> sales
        Write: write_table(sales) -> written
        """
    )
    payloads = {READ_TABLE: read.to_payload(), WRITE_TABLE: write.to_payload()}
    transforms = {
        id_: replace(step, payload=payloads[step.urn]) for id_, step in graph.transforms.items()
    }
    return replace(graph, transforms=transforms)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"table": "lake.db.sales"}, Dataset("spark", "lake.db.sales")),
        ({"path": "/data/sales"}, Dataset("file", "/data/sales")),
        ({"path": "file:///data/sales"}, Dataset("file", "/data/sales")),
        ({"path": "file:/data/sales"}, Dataset("file", "/data/sales")),
        ({"path": "file://localhost/data/sales/"}, Dataset("file", "/data/sales")),
        ({"path": "s3://bucket/sales"}, Dataset("s3://bucket", "sales")),
        ({"path": "s3a://bucket/sales"}, Dataset("s3://bucket", "sales")),
        ({"path": "s3n://key:secret@bucket/sales"}, Dataset("s3://bucket", "sales")),
        ({"path": "gs://bucket"}, Dataset("gs://bucket", "/")),
        ({"path": "hdfs://host:8020/data/sales"}, Dataset("hdfs://host:8020", "/data/sales")),
        ({"path": "hdfs:///data/part-?"}, Dataset("hdfs", "/data/part-?")),
        (
            {"path": "abfss://box@me.dfs.core.windows.net/sales?sv=1&sig=secret"},
            Dataset("abfss://box@me.dfs.core.windows.net", "sales"),
        ),
        (
            {
                "format": "jdbc",
                "options": {"url": "jdbc:postgresql://db:5432/shop?user=me", "dbtable": "sales"},
            },
            Dataset("postgres://db:5432", "shop.sales"),
        ),
    ],
)
def test_tables(target: dict[str, Any], expected: Dataset) -> None:
    found = tables_in(graph_with(TableRead(**target), TableWrite(**target)))
    assert found == Datasets(frozenset({expected}), frozenset({expected}))


def jdbc(url: str, name: str = "sales") -> Datasets:
    options = {"url": url, "dbtable": name}
    table = {"format": "jdbc", "options": options}
    return tables_in(graph_with(TableRead(**table), TableWrite(**table)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "secrets",
    [
        "me:secret@db:3306/shop",
        "me:sec@ret@db:3306/shop",
        "me:sec/ret@db:3306/shop",
        "db:3306/shop?user=me&password=secret",
        "db:3306/shop?user=me&password=sec@ret",
        "me:secret@db:3306/shop;password=secret",
    ],
)
def test_users_and_passwords_of_databases_are_left_out(secrets: str) -> None:
    expected = frozenset({Dataset("mysql://db:3306", "shop.sales")})
    assert jdbc(f"jdbc:mysql://{secrets}") == Datasets(expected, expected)


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:mysql://me:sec?ret@db:3306/shop",
        "jdbc:mysql://address=(host=db)(password=secret)/shop",
        "jdbc:mysql://(host=db,password=secret)/shop",
    ],
)
def test_a_database_whose_host_is_not_clear_has_no_name(url: str) -> None:
    assert jdbc(url) == Datasets()


@pytest.mark.parametrize("hosts", ["one,two:3306", "[::1]:3306"])
def test_hosts_of_databases(hosts: str) -> None:
    (found,) = jdbc(f"jdbc:mysql://{hosts}/shop").inputs
    assert found.namespace == f"mysql://{hosts}"


def test_queries_have_no_names() -> None:
    read, write = TableRead(query="SELECT 1"), TableWrite(format="jdbc", options={"url": "x"})
    assert tables_in(graph_with(read, write)) == Datasets()
    assert jdbc("jdbc:mysql://db/shop", "(SELECT 1) AS one") == Datasets()
