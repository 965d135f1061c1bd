"""The contender Structured Streaming: a query written by hand, which imports only PySpark.

``python -m benchmarks.kafka.structured JARS`` reads its tasks from stdin.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from benchmarks.kafka.child import serve


def start(session: Any, task: dict[str, Any]) -> Callable[[], None]:
    """Start the query."""
    kafka = {"kafka.bootstrap.servers": task["servers"]}
    records = (
        session.readStream.format("kafka")
        .options(**kafka, subscribe=task["source"], startingOffsets="earliest")
        .load()
    )
    window = f.window("timestamp", f"{task['window_s']} seconds")
    counts = (
        records.withWatermark("timestamp", f"{task['delay_s']} seconds")
        .groupBy(window.alias("window"), "key")
        .count()
    )
    text = f.concat_ws(" ", f.unix_timestamp("window.start"), "count")
    query = (
        counts.select("key", text.alias("value"))
        .writeStream.format("kafka")
        .options(**kafka, topic=task["sink"], checkpointLocation=task["folder"])
        .outputMode("update" if task["updates"] else "append")
        .trigger(processingTime=f"{task['interval_ms'] or 0} milliseconds")
        .start()
    )
    stop: Callable[[], None] = query.stop
    return stop


def _session(jars: Path) -> Any:
    return (
        SparkSession.builder.master("local[2]")
        .appName("structured")
        .config("spark.jars", ",".join(map(str, sorted(jars.glob("*.jar")))))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )


if __name__ == "__main__":
    serve(_session(Path(sys.argv[1])), start)
