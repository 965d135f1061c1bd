"""Starts the process of the JVM so that it can be interrupted, and then leaves nothing."""

import subprocess
from typing import Any

from pyspark import SparkConf

from beam_spark_runner.spark import pyspark_internals
from beam_spark_runner.spark.session.signals import signals_deferred

_ENDS_WITHIN_S = 10.0


def start_jvm(conf: SparkConf) -> None:
    """Start the JVM of this process; if that fails or is interrupted, end the JVM.

    A handler of a signal, as that of Ctrl-C, may raise an exception meanwhile. It removes the
    folder in which the JVM is about to write its port. Then the JVM would run for ever, since it
    only watches for the end of this process after that.

    Args:
        conf: See ``pyspark_internals.start_jvm``.
    """
    started: list[subprocess.Popen[bytes]] = []

    def start(*command: Any, **settings: Any) -> "subprocess.Popen[bytes]":
        with signals_deferred():  # until the process is known
            process: subprocess.Popen[bytes] = subprocess.Popen(*command, **settings)
            started.append(process)
        return process

    try:
        pyspark_internals.start_jvm(conf, start)
        pyspark_internals.have_jvm_ignore_sigterm()
    except BaseException:
        with signals_deferred():
            for process in started:
                _end(process)
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
