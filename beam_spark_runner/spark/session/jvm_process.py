"""Starts the process of the JVM so that it can be interrupted, and then leaves nothing; ends it."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from pyspark import SparkConf

from beam_spark_runner.spark import pyspark_internals
from beam_spark_runner.spark.session.jvm_output import JvmErrors
from beam_spark_runner.spark.session.signals import signals_deferred
from beam_spark_runner.state.locked_folder import LockedFolder

_ENDS_WITHIN_S = 10.0
_running: "subprocess.Popen[bytes] | None" = None
"""The JVM that this process has started, if any."""
_folder: LockedFolder | None = None
"""Its temporary files, unless they are where the machine has them."""


def start_jvm(conf: SparkConf, folder: LockedFolder | None = None) -> None:
    """Start the JVM of this process; if that fails or is interrupted, end the JVM.

    A handler of a signal, as that of Ctrl-C, may raise an exception meanwhile, after which PySpark
    removes the folder in which the JVM is about to write its port (or not, if another exception
    interrupts that). Then the JVM would run forever, since it only watches for the end of this
    process after that.

    Args:
        conf: See ``pyspark_internals.start_jvm``.
        folder: For its temporary files, by ``conf``. It is removed with the JVM.
    """
    global _running, _folder
    processes: list[subprocess.Popen[bytes]] = []
    folders: list[str | None] = []
    outputs: list[JvmErrors] = []

    def start(*command: Any, **settings: Any) -> "subprocess.Popen[bytes]":
        # In its own session, the JVM does not get Ctrl-C. PySpark would have a function of
        # Python called between fork and exec, which is unsafe while gRPC's threads run.
        settings.pop("preexec_fn", None)
        settings["start_new_session"] = True
        if folder is not None:
            settings["pass_fds"] = (folder.lock,)
        errors = JvmErrors()
        with signals_deferred():  # until the process is known
            try:
                settings["stderr"] = errors.writing
                process: subprocess.Popen[bytes] = subprocess.Popen(*command, **settings)
            except BaseException:
                errors.close_unused()
                raise
            errors.pass_on()
            outputs.append(errors)
            processes.append(process)
            folders.append(pyspark_internals.folder_of_port(settings.get("env", {})))
        return process

    try:
        pyspark_internals.start_jvm(conf, start)
        pyspark_internals.have_jvm_ignore_sigterm()
        if folder is not None:
            _have_jvm_remove(folder.path)
    except BaseException:
        with signals_deferred():
            for process in processes:
                _end(process)
            for errors in outputs:
                errors.wait_for_end()
            for of_port in filter(None, folders):
                shutil.rmtree(of_port, ignore_errors=True)  # if PySpark has not done it
            if folder is not None:
                folder.remove()
            pyspark_internals.forget_jvm()
        raise
    if processes:
        _running, _folder = processes[0], folder


def end_jvm(within_s: float = _ENDS_WITHIN_S) -> None:
    """End the JVM that ``start_jvm`` has started, so that its memory is free; another may follow.

    Nothing is done if there is none: ``spark-submit`` and programs have their own JVMs.

    Args:
        within_s: the time after which it is killed.
    """
    global _running, _folder
    if _running is None:
        return
    (process, _running), (folder, _folder) = (_running, None), (_folder, None)
    pyspark_internals.forget_jvm()
    _end(process, within_s)
    if folder is not None:
        folder.remove()


def _have_jvm_remove(folder: Path) -> None:
    """Let the JVM remove a folder when it ends, if Spark has emptied it by then."""
    java: Any = pyspark_internals.jvm()
    java.java.io.File(str(folder)).deleteOnExit()


def _leave_to_parent() -> None:
    """Let go of the JVM in a forked process: it is the parent's, with whose end it ends."""
    global _running, _folder
    if _running is None:
        return
    if _running.stdin is not None:
        _running.stdin.close()
    if _folder is not None:
        os.close(_folder.lock)
    _running = _folder = None
    pyspark_internals.forget_jvm()
    pyspark_internals.forget_context()


os.register_at_fork(after_in_child=_leave_to_parent)


def _end(process: "subprocess.Popen[bytes]", within_s: float = _ENDS_WITHIN_S) -> None:
    process.terminate()  # it removes its temporary files
    if process.stdin is not None:
        process.stdin.close()  # whose end ends a JVM that ignores SIGTERM
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
