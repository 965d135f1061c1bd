"""Reads and sets properties of a SparkSession, classic or Connect."""

import contextlib
import os
from typing import Any, Protocol

from beam_spark_runner.spark import pyspark_internals
from beam_spark_runner.spark.versions import SparkVersion

WORKER_PYTHON = "spark.sql.execution.pyspark.python"
"""The Python of the workers of one session."""
_CHECKSUM = "spark.sql.shuffle.orderIndependentChecksum"
_FAULT_HANDLER = "spark.sql.execution.pyspark.udf.faulthandler.enabled"
_RETRY = f"{_CHECKSUM}.enableFullRetryOnMismatch"
WISHED = frozenset({_FAULT_HANDLER, f"{_CHECKSUM}.enabled", _RETRY})
"""Settings of ``session_settings`` that the runner works without, if a user wants it so."""


class SparkSettings(Protocol):
    """The options by which a Spark is found or started, of ``options.config.RunnerConfig``."""

    @property
    def spark_master_url(self) -> str | None: ...
    @property
    def spark_conf(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def job_name(self) -> str | None: ...
    @property
    def session_idle_s(self) -> float: ...
    @property
    def class_archive(self) -> str | None: ...


def session_settings(version: SparkVersion) -> dict[str, str]:
    """Return the settings that the runner's jobs need, by version of Spark."""
    settings = {
        # With it, empty inputs run no task at all, and long chains take 1.6 times as long.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    }
    if version.limits_batches_by_bytes:
        settings["spark.sql.execution.arrow.maxBytesPerBatch"] = str(16 << 20)
    else:
        # No limit by size exists, and a value may be 1 MB: a batch must not kill its worker.
        settings["spark.sql.execution.arrow.maxRecordsPerBatch"] = "1000"
    if version.unites_in_place:  # see ``driver/anchor``
        settings["spark.sql.unionOutputPartitioning"] = "true"
    # A worker that crashes prints its Python stack.
    settings[_FAULT_HANDLER] = "true"
    # Spark's own defence against indeterminate stages: it then runs all tasks of their readers
    # again (4.1+; on by default from 4.2).
    settings[f"{_CHECKSUM}.enabled"] = "true"
    settings[_RETRY] = "true"
    return settings


def has_any_python(spark: Any) -> bool:
    """Whether tasks run on this machine in whichever ``python3`` is found first.

    That is Spark's choice for a session of a program that has chosen none, also if the program
    runs in a virtual environment that was not activated.
    """
    if is_connect(spark) or "PYSPARK_PYTHON" in os.environ:
        return False
    context = spark.sparkContext
    return bool(context.pythonExec == "python3" and context.master.startswith("local"))


def is_connect(spark: Any) -> bool:
    """Whether the session is a Spark Connect client."""
    # By the class, not by pyspark's global switch: a process may have sessions of both kinds.
    return any("pyspark.sql.connect" in base.__module__ for base in type(spark).__mro__)


def is_of_context(spark: Any, key: str) -> bool:
    """Whether the application was started with a setting: by ``spark-submit``, for instance.

    False on Spark Connect, where nobody knows.
    """
    return not is_connect(spark) and conf_of_context(spark, key) is not None


def conf_of_context(spark: Any, key: str) -> str | None:
    """Return a setting with which the application of a classic session was started.

    ``SparkContext.getConf`` copies all settings to read one: 7 ms.
    """
    value = pyspark_internals.scala_context(spark.sparkContext).conf().get(key, None)
    return None if value is None else str(value)


def get_conf(spark: Any, key: str, default: str | None = None) -> str | None:
    """Return a setting; or, if it is not set, the default: this one, else Spark's, else None."""
    with contextlib.suppress(Exception):  # unknown to this version, or unset and without default
        # Without a default, Spark raises for what is not set: 15 ms.
        value = spark.conf.get(key) if default is None else spark.conf.get(key, default)
        return None if value is None else str(value)
    return None


def set_conf(spark: Any, key: str, value: str, previous_values: dict[str, str | None]) -> None:
    """Set a property, and note in ``previous_values`` its value before the first change."""
    previous = get_conf(spark, key)
    spark.conf.set(key, value)
    previous_values.setdefault(key, previous)
