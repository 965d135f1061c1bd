"""Writes a class archive: ``python -m beam_spark_runner.make_class_archive [FOLDER]``.

A small pipeline runs in a JVM that writes down the classes which it has loaded when it ends. The
folder is that of ``--spark_class_archive``. Programs start this at their end, and nobody waits for
it or sees its output; an image of a container has the archive made when it is built.
"""

import contextlib
import fcntl
import os
import sys
from collections.abc import Sequence
from pathlib import Path

_NICE = 19
_WRITES_WITHIN_S = 600.0


def make(archive: Path) -> None:
    """Write an archive, whole or not at all; nothing if another process is writing it.

    Raises:
        Exception: Spark cannot start, or the file cannot be written.
    """
    lock = archive.with_suffix(".lock")
    unfinished = archive.with_suffix(".unfinished")
    with lock.open("w") as locked:
        try:
            fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if archive.exists():
            return
        try:
            _write(unfinished)
            unfinished.chmod(0o600)
            unfinished.replace(archive)
        finally:
            unfinished.unlink(missing_ok=True)
            lock.unlink(missing_ok=True)
    from beam_spark_runner.spark.session.class_archive import remove_old

    remove_old(archive.parent.glob("*.jsa"))


def _write(file: Path) -> None:
    # A path with a space could not be in the variable, but in the working folder it has none.
    os.chdir(file.parent)
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={file.name} -Xlog:disable"
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    from beam_spark_runner.runner import SparkPortableRunner
    from beam_spark_runner.spark.session.jvm_process import end_jvm

    flags = ("spark_master_url=local[2]", "progress=off", "spark_class_archive=off")
    options = PipelineOptions([f"--{each}" for each in flags])
    with beam.Pipeline(SparkPortableRunner(), options=options) as pipeline:
        _ = pipeline | beam.Create([("a", 1), ("b", 2)]) | beam.GroupByKey() | beam.Map(str)
    end_jvm(_WRITES_WITHIN_S)  # its last act is to write the file


def main(arguments: Sequence[str]) -> None:
    """Write the archive for this Java and this Spark, unless it is there.

    Args:
        arguments: The folder of archives. None: that of ``--spark_class_archive``.

    Raises:
        Exception: See ``make``; or this user has no home, or there is no Java that can do it.
    """
    from beam_spark_runner.options.values import archive_folder
    from beam_spark_runner.spark.session.class_archive import archive_in
    from beam_spark_runner.spark.session.launch import check_java

    folder = archive_folder(arguments[0] if arguments else None)
    if folder is None:
        raise ValueError("name a folder: this user has no home")
    make(archive_in(folder, check_java()))


if __name__ == "__main__":
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    main(sys.argv[1:])
