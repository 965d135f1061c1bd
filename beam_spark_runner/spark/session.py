"""The Spark that a pipeline runs on: the user's, if there is one, else one of ours."""

import contextlib
import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pyspark
from pyspark import SparkContext

from beam_spark_runner.core.errors import OptionsError, SparkSetupError
from beam_spark_runner.spark.broadcast import broadcast_file
from beam_spark_runner.spark.launch import (
    silence_pandas_opinion,
    start_classic,
    start_connect,
    version_of,
)

_DEFAULT_APP_NAME = "beam"
_SERVED = (3, 5)  # the oldest Spark that we run on


class SparkSettings(Protocol):
    """The options that matter here. ``options.RunnerConfig`` has them, a layer above."""

    @property
    def spark_master_url(self) -> str | None: ...
    @property
    def spark_conf(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def job_name(self) -> str | None: ...


class SessionHandle:
    """A session to run one pipeline in. Made by ``open_session``.

    Attributes:
        spark: the session, isolated: what we set in it, the user's does not see.
        is_connect: whether it is a Spark Connect client: no ``sparkContext``, no JVM.
        version: (major, minor) of the Spark that runs the jobs.
        master: Spark's master, such as ``local[2]``; empty where it cannot be told.
        owned: whether we started it, so that ``close`` stops it.

    Threads:
        ``cancel`` may be called by any thread, everything else by the one that
        opened the session, or by one at a time.
    """

    def __init__(self, spark: Any, *, owner: "_Owned | None", changed: dict[str, str | None]):
        self.spark = spark
        self.is_connect = _is_connect(spark)
        self.version = version_of(spark.version)
        self.master = _get(spark, "spark.master") or ""
        self.owned = owner is not None
        self._owner = owner
        self._changed = changed  # what to put back, where no session of its own could be had
        self._broadcasts: list[Any] = []
        self._is_closed = False

    @property
    def is_local(self) -> bool:
        """Whether tasks run on this machine, in the JVM of the driver."""
        return not self.is_connect and re.match(r"local(\[|$)", self.master) is not None

    @property
    def max_task_attempts(self) -> int:
        """How often Spark runs a task before it fails the job. 1: a failed task is final."""
        in_one_jvm = re.fullmatch(r"local(?:\[[^,\]]+(?:,\s*(\d+))?\])?", self.master)
        if in_one_jvm:  # there Spark ignores spark.task.maxFailures
            return int(in_one_jvm[1] or 1)
        return int(_get(self.spark, "spark.task.maxFailures") or 4)

    def local_folder(self) -> str | None:
        """Return a folder that Spark deletes when it stops, even if this process is killed.

        None: there is none, or tasks run on other machines.
        """
        if not self.is_local:
            return None
        folder: str | None = getattr(self.spark.sparkContext, "_temp_dir", None)
        return folder

    def slots(self) -> int:
        """Return how many tasks run at a time: the cores of the executors that are up now.

        Call it late: a cluster's executors take seconds to register.
        """
        if not self.is_connect:
            return max(1, int(self.spark.sparkContext.defaultParallelism))
        # Connect has no call for it; but an unsplit range gets one partition per core, and
        # planning it runs no job.
        plan = self.spark.range(1)._explain_string()
        found = re.search(r"splits=(\d+)", plan)
        return max(1, int(found[1])) if found else 1

    @contextlib.contextmanager
    def job_scope(self, tag: str, description: str) -> Iterator[None]:
        """Tag the Spark jobs that the calling thread starts, so that ``cancel`` finds them.

        Args:
            tag: no comma in it.
            description: shown with the jobs in Spark's UI (classic only).
        """
        if self.is_connect:
            self.spark.addTag(tag)
            try:
                yield
            finally:
                self.spark.removeTag(tag)
            return
        context = self.spark.sparkContext
        before = context.getLocalProperty("spark.job.description")
        context.addJobTag(tag)
        context.setJobDescription(description)
        try:
            yield
        finally:
            # The user may stop Spark while a pipeline runs in it.
            if context._jsc is not None:
                context.removeJobTag(tag)
                context.setJobDescription(before)

    def share(self, path: Path) -> tuple[Any, str | None]:
        """Give a file to all executors until ``close``. It is copied.

        Returns:
            A broadcast variable, or None and, on Spark Connect, the name by which
            ``SparkFiles`` knows it.
        """
        if not self.is_connect:
            broadcast = broadcast_file(self.spark.sparkContext, path)
            self._broadcasts.append(broadcast)
            return broadcast, None
        # It belongs to this session, and goes with it.
        self.spark.addArtifacts(str(path), file=True)
        return None, path.name

    def cancel(self, tag: str) -> None:
        """Stop the jobs that run under ``tag`` now. A job that starts later is not affected.

        So the caller first makes sure that its own thread starts no more, and calls
        again as long as that thread has not ended.
        """
        if self.is_connect:
            self.spark.interruptTag(tag)
        elif self.spark.sparkContext._jsc is not None:
            self.spark.sparkContext.cancelJobsWithTag(tag)

    def close(self) -> None:
        """Stop what we started; leave the user's session and its settings as they were found."""
        if self._is_closed:
            return
        self._is_closed = True
        for broadcast in self._broadcasts:
            with contextlib.suppress(Exception):  # the user may have stopped Spark
                broadcast.destroy()
        if self._owner is not None:
            self._owner.release()
        elif self._changed:
            for key, value in self._changed.items():
                if value is None:
                    self.spark.conf.unset(key)
                else:
                    self.spark.conf.set(key, value)
        elif self.is_connect:
            # Not stop(): in a local Connect setup that ends the user's server too.
            release = getattr(self.spark.client, "release_session", None)
            with contextlib.suppress(Exception):  # the server forgets idle sessions anyway
                if release is not None:
                    release()
                self.spark.client.close()

    def __enter__(self) -> "SessionHandle":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_session(config: SparkSettings, given: Any = None) -> SessionHandle:
    """Find or start the Spark to run on.

    In this order: the session that the runner was given; the active or default
    session of this process; ``--spark_master_url``; the Connect server that
    SPARK_REMOTE names; the master that spark-submit or the user's Spark
    configuration chose; ``local[*]``.

    Args:
        config: the options. Spark's own go by ``spark_conf``.
        given: a SparkSession, classic or Connect.

    Raises:
        SparkSetupError: no usable Spark; the text says why and what to do.
        OptionsError: an option asks for what the existing session is not.
    """
    silence_pandas_opinion()
    with _lock:
        found = given if given is not None else _existing_session()
        if found is None:
            found = _start(config)
            return _prepared(found, config, owner=_own(found))
        _check_alive(found)
        if _owned is not None and found is _owned.spark:  # another pipeline of ours runs in it
            _check_master(found, config)
            _owned.users += 1
            return _prepared_isolated(found, config, owner=_owned)
        _check_master(found, config)
        return _prepared_isolated(found, config, owner=None)


class _Owned:
    """A Spark that we started. Pipelines that run at a time share it; the last one stops it."""

    def __init__(self, spark: Any) -> None:
        self.spark = spark
        self.users = 1

    def release(self) -> None:
        global _owned
        with _lock:
            self.users -= 1
            if self.users:
                return
            _owned = None
            # spark-submit's context lives as long as the program: on YARN a second one
            # cannot be had.
            if _is_connect(self.spark) or "PYSPARK_GATEWAY_PORT" not in os.environ:
                self.spark.stop()


_owned: _Owned | None = None
_lock = threading.RLock()


def _own(spark: Any) -> _Owned:
    global _owned
    _owned = _Owned(spark)
    return _owned


def _start(config: SparkSettings) -> Any:
    master, remote = config.spark_master_url, os.environ.get("SPARK_REMOTE")
    given = dict(config.spark_conf)
    if master is not None and master.startswith("sc://"):
        return start_connect(master, given)
    if remote and master is not None:
        raise OptionsError(
            "spark_master_url",
            f"{master} is given, but the environment variable SPARK_REMOTE names a Spark "
            "Connect server; unset one of the two",
        )
    if remote:
        return start_connect(None, given)
    return start_classic(master, config.job_name or _DEFAULT_APP_NAME, given)


def _existing_session() -> Any:
    """Return the active session of this thread, or the default one of this process, or None."""
    connect = sys.modules.get("pyspark.sql.connect.session")
    if connect is not None:
        remote = connect.SparkSession
        for session in (remote.getActiveSession(), remote._default_session):
            if session is not None and not session.is_stopped:
                return session
    if SparkContext._active_spark_context is None:
        return None
    from pyspark.sql import SparkSession

    # Other threads than the one that built it have no active session, but it is the default.
    # ``getOrCreate`` would return it too, and set options in it.
    session = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    if session is None:  # a bare SparkContext
        session = SparkSession.builder.getOrCreate()
    return session


def _check_alive(spark: Any) -> None:
    if not hasattr(spark, "conf") or not hasattr(spark, "range"):
        raise SparkSetupError(
            f"a SparkSession was expected, not {type(spark).__name__}.",
            "Pass a SparkSession, or none: the active one is found.",
        )
    is_stopped = spark.is_stopped if _is_connect(spark) else spark.sparkContext._jsc is None
    if is_stopped:
        raise SparkSetupError(
            "the SparkSession was stopped.", "Build it again, or pass none: one is started."
        )


def _check_master(spark: Any, config: SparkSettings) -> None:
    wanted = config.spark_master_url
    if wanted is None:
        return
    if _is_connect(spark):
        actual = f"sc://{spark.client.host}"
        is_same = wanted.startswith("sc://") and _host(wanted) == _host(actual)
    else:
        actual = spark.sparkContext.master
        is_same = wanted == actual
    if not is_same:
        raise OptionsError(
            "spark_master_url",
            f"{wanted} is given, but this process already has a SparkSession on {actual}; "
            "leave the option out to use that one, or stop it first",
        )


def _host(url: str) -> str:
    return re.split(r"[:/;]", url.removeprefix("sc://"))[0]


def _prepared_isolated(spark: Any, config: SparkSettings, owner: _Owned | None) -> SessionHandle:
    own = _second_session(spark)
    if own is not None:
        return _prepared(own, config, owner, is_shared=True)
    return _prepared(spark, config, owner, is_shared=True, restores=True)


def _second_session(spark: Any) -> Any:
    """Return a session beside ``spark`` on the same Spark, or None where none can be had."""
    if not _is_connect(spark):
        return spark.newSession()
    # A clone has the user's settings and uploaded files (Spark 4.1+); the server may be older.
    with contextlib.suppress(Exception):
        clone = spark.cloneSession()
        clone.version  # noqa: B018  (asks the server)
        return clone
    builder = spark.client._builder
    if builder.session_id is None:  # else the address itself names the one session to use
        with contextlib.suppress(Exception):
            fresh = type(spark)(connection=builder, userId=spark.client._user_id)
            fresh.version  # noqa: B018
            return fresh
    return None


def _prepared(
    spark: Any,
    config: SparkSettings,
    owner: _Owned | None,
    *,
    is_shared: bool = False,
    restores: bool = False,
) -> SessionHandle:
    """Set what our jobs need in ``spark``, then what the user asked for."""
    try:
        _check_version(spark)
        changed: dict[str, str | None] = {}
        given = dict(config.spark_conf)
        for key, value in _session_settings(version_of(spark.version)).items():
            if key not in given and _knows(spark, key):
                _set(spark, key, value, changed)
        for key, value in given.items() if is_shared else ():
            if _get(spark, key) == value:
                continue
            try:
                _set(spark, key, value, changed)
            except Exception as error:
                raise OptionsError(
                    "spark_conf",
                    f"{key} cannot be changed in a SparkSession that exists already; "
                    "set it where that session is built",
                ) from error
        return SessionHandle(spark, owner=owner, changed=changed if restores else {})
    except BaseException:
        if owner is not None:
            owner.release()
        raise


def _session_settings(version: tuple[int, int]) -> dict[str, str]:
    settings = {
        # With it, empty inputs run no task at all, and long chains take 1.6 times as long.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    }
    if version >= (4, 0):
        settings["spark.sql.execution.arrow.maxBytesPerBatch"] = str(16 << 20)
    else:
        # No limit by size exists, and a value may be 1 MB: a batch must not kill its worker.
        settings["spark.sql.execution.arrow.maxRecordsPerBatch"] = "1000"
    # A worker that crashes says where in Python it was.
    settings["spark.sql.execution.pyspark.udf.faulthandler.enabled"] = "true"
    # Spark's own defence against stages that do not repeat themselves: it then runs their
    # readers again as a whole (4.1+; on by default from 4.2).
    settings["spark.sql.shuffle.orderIndependentChecksum.enabled"] = "true"
    settings["spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch"] = "true"
    return settings


def _check_version(spark: Any) -> None:
    version = version_of(spark.version)
    if not _SERVED <= version < (5, 0):
        raise SparkSetupError(
            f"this is Spark {spark.version}; the runner needs 3.5 or 4.x.",
            "Use a cluster of such a version.",
        )
    if not _is_connect(spark) and version != version_of(pyspark.__version__):
        raise SparkSetupError(
            f"pyspark {pyspark.__version__} is installed, but SPARK_HOME has Spark "
            f"{spark.version}.",
            f"Install pyspark {spark.version}, or unset SPARK_HOME.",
        )


def _is_connect(spark: Any) -> bool:
    # By the class, not by pyspark's global switch: a process may have sessions of both kinds.
    return any("pyspark.sql.connect" in base.__module__ for base in type(spark).__mro__)


def _get(spark: Any, key: str) -> str | None:
    with contextlib.suppress(Exception):  # unknown to this version, or unset and without default
        value = spark.conf.get(key)
        return None if value is None else str(value)
    return None


def _knows(spark: Any, key: str) -> bool:
    return _get(spark, key) is not None


def _set(spark: Any, key: str, value: str, changed: dict[str, str | None]) -> None:
    before = _get(spark, key)
    spark.conf.set(key, value)
    changed[key] = before
