"""A Spark with Delta and Iceberg, and tables of both. Their packages come from Maven."""

from pathlib import Path
from typing import Any

import pyspark
import pytest

from beam_spark_runner.spark.versions import SparkVersion
from integration.table_pipelines import Target

VERSION = SparkVersion.parse(pyspark.__version__)
PACKAGES = {
    (3, 5): (
        "io.delta:delta-spark_2.12:3.3.2",
        "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.10.1",
    ),
    (4, 1): (
        "io.delta:delta-spark_4.1_2.13:4.4.0",
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    ),
}
"""By the version of Spark: the newest that exist for it and run on its Java."""
NEEDS_PACKAGES = pytest.mark.skipif(
    VERSION not in PACKAGES,
    reason="Delta and Iceberg have no packages for this Spark: make integration-tables has another",
)


def conf_in(folder: Path) -> dict[str, str]:
    """Return the settings of a Spark with both: Delta in its own catalog, Iceberg in ``lake``."""
    catalog = "spark.sql.catalog"
    return {
        "spark.ui.enabled": "false",
        "spark.jars.packages": ",".join(PACKAGES[VERSION]),
        # Spark has it. Ivy takes it from Maven's local repository, which may have its POM alone.
        "spark.jars.excludes": "commons-logging:commons-logging",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        f"{catalog}.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        f"{catalog}.lake": "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.lake.type": "hadoop",
        f"{catalog}.lake.warehouse": str(folder / "lake"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
    }


KINDS = ("delta table", "delta path", "iceberg table")
"""Iceberg creates tables in paths in a Hive, which is not here."""
_NAMES = {"delta": "numbers", "iceberg": "lake.db.numbers"}


def overwrites(kind: str) -> bool:
    """Whether Spark can overwrite a kind of table.

    Spark 3.5.9 overwrites a table that has a name by a way that Delta 3.3.2 does not have: "does
    not support truncate in batch mode", also without Beam.
    """
    return VERSION >= (4, 0) or kind != "delta table"


class Table:
    """A table of integers that does not exist yet.

    Attributes:
        target: what pipelines read and write.
        folder: of its data.
        format: of it.
        kind: one of ``KINDS``.

    Args:
        spark: with the settings of ``conf_in``.
        home: of these settings.
        folder: for a table without a name.
        kind: of ``KINDS``.
        flags: of all pipelines.
    """

    def __init__(
        self, spark: Any, home: Path, folder: Path, kind: str, flags: tuple[str, ...] = ()
    ) -> None:
        self._spark = spark
        self.kind = kind
        self.format, _, place = kind.partition(" ")
        if place == "path":
            self.folder = folder / "out"
            self._name, separator = str(self.folder), "#"
            self.target = Target(
                spark, {"path": self._name, "format": self.format}, self._load, flags
            )
        else:
            self._name, separator = _NAMES[self.format], "."
            below = "warehouse/numbers" if self.format == "delta" else "lake/db/numbers"
            self.folder = home / below
            self.target = Target(
                spark, {"table": self._name, "format": self.format}, self._load, flags
            )
        self._snapshots = f"{self._name}{separator}snapshots"

    def _load(self) -> Any:
        if "path" in self.target.arguments:
            return self._spark.read.format(self.format).load(self._name)
        return self._spark.table(self._name)

    def commits(self) -> list[Any]:
        """Return what names each version that there is, the first one first."""
        if self.format == "delta":
            name = self._name if "table" in self.target.arguments else f"delta.`{self._name}`"
            history = self._spark.sql(f"DESCRIBE HISTORY {name}").collect()
            return sorted(row["version"] for row in history)
        snapshots = self._spark.read.format("iceberg").load(self._snapshots)
        return [row["snapshot_id"] for row in snapshots.orderBy("committed_at").collect()]


def drop(spark: Any) -> None:
    """Drop the tables that have names."""
    spark.sql(f"DROP TABLE IF EXISTS {_NAMES['delta']}")
    spark.sql(f"DROP TABLE IF EXISTS {_NAMES['iceberg']} PURGE")
