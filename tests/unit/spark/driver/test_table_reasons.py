"""Which package to add, if Spark has no connector or driver."""

import pytest

from beam_spark_runner.spark.driver.table_reasons import (
    is_missing_connector,
    is_missing_table,
    reason_for,
)

NO_SOURCE = Exception("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: it. Make sure …")
NO_DRIVER = Exception("java.sql.SQLException: No suitable driver")
ADD = "Add it, where the session is started: --spark_conf spark.jars.packages="


@pytest.mark.parametrize(
    ("format_", "version", "package"),
    [
        ("delta", "4.3.0", "io.delta:delta-spark_4.3_2.13:VERSION"),
        ("delta", "3.5.6", "io.delta:delta-spark_2.12:VERSION"),
        ("Iceberg", "4.1.2", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:VERSION"),
        ("iceberg", "3.5.6", "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:VERSION"),
        ("hudi", "3.5.6", "org.apache.hudi:hudi-spark3.5-bundle_2.12:VERSION"),
        ("avro", "4.3.0", "org.apache.spark:spark-avro_2.13:4.3.0"),
        ("kafka", "3.5.6", "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.6"),
    ],
)
def test_connectors_are_those_of_the_version_of_spark(
    format_: str, version: str, package: str
) -> None:
    assert is_missing_connector(NO_SOURCE)
    reason, _, advice = reason_for(NO_SOURCE, format_, {}, version).partition(". There may be")
    assert reason == f"Spark has no connector for {format_}. {ADD}{package}"
    assert bool(advice) == (format_.lower() in ("delta", "iceberg", "hudi"))


def test_connectors_that_nobody_knows() -> None:
    assert reason_for(NO_SOURCE, "mine", {}, "4.3.0") == (
        "Spark has no connector for mine. Add the package of the connector, where the session is "
        "started: --spark_conf spark.jars.packages=GROUP:NAME:VERSION"
    )


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("jdbc:mysql://host/x", f"{ADD}com.mysql:mysql-connector-j:VERSION"),
        ("jdbc:odd:x", "Add the package with the JDBC driver of odd, where the session is started"),
        ("", "Spark has no JDBC driver for it. Add the package with the JDBC driver of the data"),
    ],
)
def test_a_missing_jdbc_driver_is_named_by_its_url(url: str, expected: str) -> None:
    reason = reason_for(NO_DRIVER, "jdbc", {"url": url}, "4.3.0")
    assert expected in reason
    assert reason.endswith("If it is there, name its class by the option driver")


@pytest.mark.parametrize(
    "text",
    [
        "[DELTA_PATH_DOES_NOT_EXIST] /out doesn't exist, or is not a Delta table.",
        "Table does not exist at location: /out",
        "[PATH_NOT_FOUND] Path does not exist: file:/out.",
        "[TABLE_OR_VIEW_NOT_FOUND] The table or view `out` cannot be found.",
    ],
)
def test_what_formats_say_of_a_table_that_is_not_there(text: str) -> None:
    assert is_missing_table(Exception(text))
    assert not is_missing_connector(Exception(text))


def test_an_overwrite_that_would_change_the_schema_of_a_delta_table() -> None:
    error = Exception(
        "A schema mismatch detected when writing to the Delta table (Table ID: 1).\n"
        "To overwrite your schema or change partitioning, please set:\n"
        '\'.option("overwriteSchema", "true")\'.\n'
    )
    reason = reason_for(error, "delta", {}, "4.1.2")
    assert reason.startswith("A schema mismatch detected when writing to the Delta table")
    assert reason.endswith(
        ". With options={'overwriteSchema': True} the write changes the schema of the table"
    )


def test_a_reason_has_neither_password_nor_url() -> None:
    url = "jdbc:postgresql://db/shop?password=hidden"
    error = RuntimeError(f"java.sql.SQLException: no connection to {url} with secret")
    options = {"URL": url, "password": "secret", "user": ""}
    assert reason_for(error, "jdbc", options, "4.1.0") == "no connection to *** with ***"
