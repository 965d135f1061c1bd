"""Says what is wrong where Spark cannot read or write a table, and what to do about it."""

import re
from collections.abc import Mapping

from beam_spark_runner.spark.driver.spark_errors import reason_of
from beam_spark_runner.spark.java_errors import text_of_error

_MISSING_FORMAT = re.compile(
    r"DATA_SOURCE_NOT_FOUND|[Ff]ailed to find (the )?data source|MISSING_KAFKA"
    r"|ClassNotFoundException: (\S+\.)?(DefaultSource|SparkCatalog|DeltaCatalog)"
)
_MISSING_DRIVER = re.compile(r"No suitable driver|ClassNotFoundException: \S*[Dd]river")
_PACKAGES = {
    "avro": "org.apache.spark:spark-avro_{scala}:{spark}",
    "protobuf": "org.apache.spark:spark-protobuf_{scala}:{spark}",
    "kafka": "org.apache.spark:spark-sql-kafka-0-10_{scala}:{spark}",
    "delta": "io.delta:delta-spark{of_spark_4}_{scala}",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-{minor}_{scala}",
    "hudi": "org.apache.hudi:hudi-spark{minor}-bundle_{scala}",
    "bigquery": "com.google.cloud.spark:spark-bigquery-with-dependencies_{scala}",
    "snowflake": "net.snowflake:spark-snowflake_{scala}",
    "mongodb": "org.mongodb.spark:mongo-spark-connector_{scala}",
    "org.apache.spark.sql.cassandra": "com.datastax.spark:spark-cassandra-connector_{scala}",
    "org.elasticsearch.spark.sql": "org.elasticsearch:elasticsearch-spark-30_{scala}",
    "com.databricks.spark.xml": "com.databricks:spark-xml_{scala}",
}
"""Coordinates of connectors; ``_package_of`` says what the fields are."""
_OF_A_MINOR_VERSION = ("delta", "iceberg", "hudi")
"""Connectors that are released for a minor version of Spark some time after it."""
_DRIVERS = {
    "postgresql": "org.postgresql:postgresql",
    "mysql": "com.mysql:mysql-connector-j",
    "mariadb": "org.mariadb.jdbc:mariadb-java-client",
    "sqlserver": "com.microsoft.sqlserver:mssql-jdbc",
    "oracle": "com.oracle.database.jdbc:ojdbc11",
    "sqlite": "org.xerial:sqlite-jdbc",
    "h2": "com.h2database:h2",
    "db2": "com.ibm.db2:jcc",
    "derby": "org.apache.derby:derby",
    "snowflake": "net.snowflake:snowflake-jdbc",
}
_NO_TABLE = re.compile(
    r"TABLE_OR_VIEW_NOT_FOUND|PATH_NOT_FOUND|NoSuchTableException|DELTA_TABLE_NOT_FOUND"
    r"|DELTA_MISSING_DELTA_TABLE|DELTA_PATH_DOES_NOT_EXIST|Path does not exist"
    r"|Table does not exist at location"  # Iceberg, of a folder
)
_NO_CONNECTION = re.compile(
    r"[Cc]onnection (to \S+ )?(was )?(refused|attempt failed|timed out)|Communications link failure"
    r"|UnknownHostException|authentication failed|Access denied|permission denied"
)
_NEW_SCHEMA = "overwriteSchema"  # Delta's option, which it names far down in its error
_EXISTS_WITHOUT_SCHEMA = re.compile(r"UNABLE_TO_INFER_SCHEMA|Unable to infer schema")


def is_refused_connection(error: BaseException) -> bool:
    """Whether a database cannot be reached, or denies access."""
    return _NO_CONNECTION.search(text_of_error(error)) is not None


def is_missing_schema(error: BaseException) -> bool:
    """Whether a path exists, and only has no files yet from which to infer a schema."""
    return _EXISTS_WITHOUT_SCHEMA.search(text_of_error(error)) is not None


def is_missing_table(error: BaseException) -> bool:
    """Whether Spark says that a table or path does not exist."""
    return _NO_TABLE.search(text_of_error(error)) is not None


def is_missing_connector(error: BaseException) -> bool:
    """Whether Spark says that it has no connector or driver for a data source."""
    text = text_of_error(error)
    return bool(_MISSING_FORMAT.search(text) or _MISSING_DRIVER.search(text))


def without_secrets(text: str, options: Mapping[str, str]) -> str:
    """Return a text without the password and the URL among the options of a database."""
    for key, value in options.items():
        if value and key.lower() in ("url", "password"):
            text = text.replace(value, "***")
    return text


def reason_for(error: BaseException, format_: str, options: Mapping[str, str], version: str) -> str:
    """Return what is wrong, in words for people, without passwords.

    Args:
        error: the error that Spark raised.
        format_: the name of the data source, if there is one.
        options: the options of the data source.
        version: the version of Spark.
    """
    return without_secrets(_reason(error, format_, options, version), options)


def _reason(error: BaseException, format_: str, options: Mapping[str, str], version: str) -> str:
    text = text_of_error(error)
    if _MISSING_DRIVER.search(text):
        url = options.get("url", "")
        kind = url.removeprefix("jdbc:").partition(":")[0]
        package = _DRIVERS.get(
            kind, f"the package with the JDBC driver of {kind or 'the database'}"
        )
        return (
            f"Spark has no JDBC driver for {kind or 'it'}. {_add(package)}. If it is there, name "
            "its class by the option driver"
        )
    if _MISSING_FORMAT.search(text):
        text = (
            f"Spark has no connector for {format_ or 'it'}. {_add(_package_of(format_, version))}"
        )
        if format_.lower() in _OF_A_MINOR_VERSION:
            text += f". There may be none for Spark {_minor(version)} yet"
        return text
    if _NEW_SCHEMA in text:
        return (
            f"{reason_of(error).rstrip('.')}. With options={{'{_NEW_SCHEMA}': True}} the write "
            "changes the schema of the table"
        )
    return reason_of(error)


def _package_of(format_: str, version: str) -> str:
    """Return the coordinates of a connector for a version of Spark, or words for an unknown one."""
    minor = _minor(version)
    is_spark_3 = version.startswith("3.")
    return _PACKAGES.get(format_.lower(), "the package of the connector").format(
        spark=version,
        minor=minor,
        of_spark_4="" if is_spark_3 else f"_{minor}",
        scala="2.12" if is_spark_3 else "2.13",  # as the PySpark on PyPI has it
    )


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _add(package: str) -> str:
    if ":" not in package:
        return (
            f"Add {package}, where the session is started: --spark_conf "
            "spark.jars.packages=GROUP:NAME:VERSION"
        )
    coordinates = package if package.count(":") == 2 else f"{package}:VERSION"
    return f"Add it, where the session is started: --spark_conf spark.jars.packages={coordinates}"
