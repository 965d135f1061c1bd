"""Starts the process of the JVM so that it can be interrupted, and then leaves nothing."""

import shutil
import subprocess
from typing import Any

from pyspark import SparkConf

from beam_spark_runner.spark import pyspark_internals
from beam_spark_runner.spark.session.signals import signals_deferred

_ENDS_WITHIN_S = 10.0


def start_jvm(conf: SparkConf) -> None:
    """Start the JVM of this process; if that fails or is interrupted, end the JVM.

    A handler of a signal, as that of Ctrl-C, may raise an exception meanwhile, after which PySpark
    removes the folder in which the JVM is about to write its port (or not, if another exception
    interrupts that). Then the JVM would run for ever, since it only watches for the end of this
    process after that.

    Args:
        conf: See ``pyspark_internals.start_jvm``.
    """
    started: list[subprocess.Popen[bytes]] = []
    folders: list[str | None] = []

    def start(*command: Any, **settings: Any) -> "subprocess.Popen[bytes]":
        with signals_deferred():  # until the process is known
            process: subprocess.Popen[bytes] = subprocess.Popen(*command, **settings)
            started.append(process)
            folders.append(pyspark_internals.folder_of_port(settings.get("env", {})))
        return process

    try:
        pyspark_internals.start_jvm(conf, start)
        pyspark_internals.have_jvm_ignore_sigterm()
    except BaseException:
        with signals_deferred():
            for process in started:
                _end(process)
            for folder in filter(None, folders):
                shutil.rmtree(folder, ignore_errors=True)  # if PySpark has not done it
            pyspark_internals.forget_jvm()
        raise


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()  # it removes its temporary files
    if process.stdin is not None:
        process.stdin.close()  # whose end ends a JVM that ignores SIGTERM
    try:
        process.wait(_ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
