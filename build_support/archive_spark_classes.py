"""Write the classes that a local Spark loads into an archive that later JVMs map into memory.

Tests start some dozens of JVMs, each of which would parse and verify the same ten thousand
classes. Java calls this dynamic class data sharing (JEP 350).

Usage: ``python build_support/archive_spark_classes.py ARCHIVE``
"""

import os
import sys
from pathlib import Path


def main(archive: Path) -> None:
    """Run a small pipeline in a JVM that writes its archive when it ends, and wait for its end.

    Args:
        archive: path of the file; a JVM that finds none there, or one of another Java, continues
            without it.
    """
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={archive} -Xlog:disable"
    import apache_beam as beam
    from pyspark import SparkContext

    from beam_spark_runner.runner import SparkPortableRunner
    from beam_spark_runner.spark.session.launch import start_classic

    conf = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    session = start_classic("local[2]", "archive", conf)
    with beam.Pipeline(runner=SparkPortableRunner(session)) as pipeline:
        _ = pipeline | beam.Create([("a", 1), ("b", 2)]) | beam.GroupByKey()
    session.stop()
    jvm = SparkContext._gateway.proc  # type: ignore[union-attr]
    jvm.stdin.close()  # the end of its input ends the JVM
    jvm.wait()
    if not archive.exists():
        sys.exit(f"Java has not written {archive}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
