"""Opens the Spark session of a pipeline: the user's if there is one, otherwise a new one."""

import atexit
import contextlib
import logging
import os
import sys
import threading
from typing import Any, Protocol

import pyspark

from beam_spark_runner.core.errors import OptionsError, SparkSetupError
from beam_spark_runner.spark import pyspark_internals
from beam_spark_runner.spark.session.conf import (
    WORKER_PYTHON,
    get_conf,
    has_any_python,
    is_connect,
    knows_conf,
    session_settings,
    set_conf,
)
from beam_spark_runner.spark.session.handle import SessionHandle, release_connect_session
from beam_spark_runner.spark.session.launch import (
    addresses_in,
    settings_of_start,
    silence_pandas_opinion,
    start_classic,
    start_connect,
    version_of,
    without_token,
)
from beam_spark_runner.spark.session.own_spark import OwnSpark

_LOGGER = logging.getLogger(__name__)
_DEFAULT_APP_NAME = "beam"
_SERVED = (3, 5)  # the oldest supported Spark


class SparkSettings(Protocol):
    """The options that are read here. ``options.RunnerConfig``, in a higher layer, has them."""

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


def open_session(config: SparkSettings, given: Any = None) -> SessionHandle:
    """Find or start the Spark to run on.

    In this order: the session that the runner was given; the active or default
    session of this process; ``--spark_master_url``; the Connect server that
    SPARK_REMOTE names; the master that spark-submit or the user's Spark
    configuration chose; ``local[*]``.

    A Spark that is started here goes on after its last pipeline, for the next one. If that asks
    for another Spark, the former one ends first.

    Args:
        config: the options; Spark's own are in ``spark_conf``.
        given: a SparkSession, classic or Connect.

    Raises:
        SparkSetupError: no usable Spark; the text says why and what to do.
        OptionsError: an option contradicts the existing session.
    """
    silence_pandas_opinion()
    with _lock:
        if _own is not None and _own.has_stopped():
            _forget_own()  # by the program
        if _own is not None and given is None and not _own.users:
            _end_own_unless_it_serves(config)
        found = given if given is not None else _existing_session()
        if found is None:
            found = _start_own(config)
        _check_alive(found)
        if _own is None or found is not _own.spark:
            _check_master(found, config)
            return _prepared_isolated(found, config, owner=None)
        if given is not None or _own.users:
            _check_master(found, config)
        return _prepared_isolated(found, config, owner=_User(_own, config))


class _User:
    """The use of the runner's Spark by one pipeline."""

    def __init__(self, own: OwnSpark, config: SparkSettings) -> None:
        self.own = own
        self._idle_s = config.session_idle_s
        own.take()

    def release(self) -> None:
        with _lock:
            self.own.leave(self._idle_s)


_own: OwnSpark | None = None
_lock = threading.RLock()


def stop_session() -> bool:
    """Stop the Spark that the runner has started in this process, and end its JVM.

    Returns:
        Whether there was one.

    Raises:
        SparkSetupError: Pipelines run in it.
    """
    with _lock:
        if _own is None:
            return False
        if _own.users:
            raise SparkSetupError(
                f"{_own.users} pipelines run in this process's Spark.",
                "Wait for them, or cancel them.",
            )
        _end_own()
        return True


def is_there(spark: Any) -> bool:
    """Whether the JVM of a session still runs. On Spark Connect True: a server may come back."""
    return is_connect(spark) or pyspark_internals.jvm_answers()


def forget_ended(session: SessionHandle) -> None:
    """Let the next ``open_session`` start another application: this one has ended.

    Pipelines that still use it may close their sessions later.

    Args:
        session: a session of an application that was started here.
    """
    with _lock:
        if _own is not None and _own.spark.sparkContext is session.spark.sparkContext:
            spark = _own.spark
            _forget_own()
            spark.stop()  # for PySpark, which does not notice that it has ended


def _end_own_unless_it_serves(config: SparkSettings) -> None:
    assert _own is not None
    if died := _own.has_died():
        _LOGGER.warning("another Spark is started: %s", died)
        _end_own()
        return
    given = dict(config.spark_conf)
    settings = given if is_connect(_own.spark) else settings_of_start(given)
    if differs := _own.differs_from(_wanted_master(config), settings):
        _LOGGER.info("another Spark is started: %s", differs)
        _end_own()


def _forget_own() -> None:
    global _own
    if _own is not None:
        _own.abandon()
        _own = None


def _end_own() -> None:
    global _own
    if _own is not None:
        ending, _own = _own, None
        ending.end()


def _end_idle(own: OwnSpark) -> None:
    with _lock:
        if own is not _own or own.users or own.has_stopped():
            return
        if own.is_used_otherwise():
            _LOGGER.info("the program has run Spark jobs of its own: Spark is not stopped")
            _forget_own()
            return
        _LOGGER.info("Spark is stopped: no pipeline has run for --spark_session_idle_timeout")
        _end_own()


def _in_child() -> None:
    """Forget the runner's Spark in a forked process: it is the parent's."""
    global _own, _lock
    _own, _lock = None, threading.RLock()


os.register_at_fork(after_in_child=_in_child)


@atexit.register
def _at_exit() -> None:
    """End an application on a cluster properly. A local Spark ends with its JVM, by itself."""
    if _own is not None and not _own.is_local:
        _end_own()


def _start_own(config: SparkSettings) -> Any:
    global _own
    spark = _start(config)
    given = dict(config.spark_conf)
    settings = given if is_connect(spark) else settings_of_start(given)
    _own = OwnSpark(spark, _wanted_master(config), settings, _end_idle)
    return spark


def _wanted_master(config: SparkSettings) -> str | None:
    return config.spark_master_url or os.environ.get("SPARK_REMOTE")


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
    return start_classic(
        master,
        config.job_name or _DEFAULT_APP_NAME,
        given,
        serves_many=True,
        class_archive=config.class_archive,
    )


def _existing_session() -> Any:
    """Return the active session of this thread, or the default one of this process, or None."""
    connect = sys.modules.get("pyspark.sql.connect.session")
    if connect is not None:
        remote = connect.SparkSession
        for session in (
            remote.getActiveSession(),
            pyspark_internals.default_connect_session(remote),
        ):
            if session is not None and not session.is_stopped:
                return session
    if not pyspark_internals.has_context():
        return None
    from pyspark.sql import SparkSession

    # Other threads than the one that built it have no active session, but it is the default.
    # ``getOrCreate`` would return it too, and set options in it.
    session = SparkSession.getActiveSession() or pyspark_internals.default_session()
    if session is None:  # a bare SparkContext
        session = SparkSession.builder.getOrCreate()
    return session


def _check_alive(spark: Any) -> None:
    if not hasattr(spark, "conf") or not hasattr(spark, "range"):
        raise SparkSetupError(
            f"a SparkSession was expected, not {type(spark).__name__}.",
            "Pass a SparkSession, or none: then the active one is used.",
        )
    connect = is_connect(spark)
    if spark.is_stopped if connect else pyspark_internals.is_stopped(spark.sparkContext):
        raise SparkSetupError(
            "the SparkSession was stopped.",
            "Build a new one, or pass none: then the runner starts one.",
        )


def _check_master(spark: Any, config: SparkSettings) -> None:
    wanted = config.spark_master_url
    if wanted is None:
        return
    if is_connect(spark):
        actual = f"sc://{pyspark_internals.server_of(spark)}"
        is_same = wanted.startswith("sc://") and (
            [*addresses_in(wanted)] == [*addresses_in(actual)]
        )
    else:
        actual = spark.sparkContext.master
        is_same = wanted == actual
    if not is_same:
        raise OptionsError(
            "spark_master_url",
            f"{without_token(wanted)} is given, but this process already has a SparkSession on "
            f"{actual}; leave the option out to use that session, or stop the session first",
        )


_BUSY: list[Any] = []
"""Sessions whose settings are changed while a pipeline runs in them."""


def _prepared_isolated(spark: Any, config: SparkSettings, owner: _User | None) -> SessionHandle:
    own = _second_session(spark)
    if own is not None:
        return _prepared(own, config, owner, is_shared=True, program=spark)
    if spark in _BUSY:
        if owner is not None:
            owner.release()
        raise SparkSetupError(
            "another pipeline runs in this SparkSession, and Spark cannot create a second session "
            "beside it.",
            "Wait for that pipeline, or use another session: one whose URL has no session_id.",
        )
    return _prepared(spark, config, owner, is_shared=True, restores=True)


def _second_session(spark: Any) -> Any:
    """Return a session beside ``spark`` on the same Spark, or None where none can be had."""
    if not is_connect(spark):
        return spark.newSession()
    spark.version  # noqa: B018  (a session that was never used cannot be cloned)
    # A clone has the user's settings and uploaded files (Spark 4.1+); the server may be older.
    with contextlib.suppress(Exception):
        clone = spark.cloneSession()
        clone.version  # noqa: B018  (asks the server)
        return clone
    with contextlib.suppress(Exception):
        fresh = pyspark_internals.new_connect_session(spark)
        if fresh is not None:
            fresh.version  # noqa: B018
        return fresh
    return None


def _prepared(
    spark: Any,
    config: SparkSettings,
    owner: _User | None,
    *,
    is_shared: bool = False,
    restores: bool = False,
    program: Any = None,
) -> SessionHandle:
    """Set the properties that the runner needs in ``spark``, then those that the user gave."""
    try:
        _check_version(spark)
        changed: dict[str, str | None] = {}
        given = dict(config.spark_conf)
        for key, value in session_settings(version_of(spark.version)).items():
            if key not in given and knows_conf(spark, key):
                set_conf(spark, key, value, changed)
        if WORKER_PYTHON not in given and has_any_python(spark):
            set_conf(spark, WORKER_PYTHON, sys.executable, changed)
        for key, value in given.items() if is_shared else ():
            if get_conf(spark, key) == value:
                continue
            try:
                set_conf(spark, key, value, changed)
            except Exception as error:
                raise OptionsError(
                    "spark_conf",
                    f"{key} cannot be changed in a SparkSession that exists already; "
                    "set it where that session is built",
                ) from error
        handle = SessionHandle(
            spark,
            owner=owner,
            changed=changed if restores else {},
            program=program,
            given=(*changed, *given),
        )
        if restores:
            _BUSY.append(spark)
            handle.on_close = lambda: _BUSY.remove(spark)
        return handle
    except BaseException:
        if program is not None and is_connect(spark):
            release_connect_session(spark)
        if owner is not None:
            owner.release()
        raise


def _check_version(spark: Any) -> None:
    version = version_of(spark.version)
    if not _SERVED <= version < (5, 0):
        raise SparkSetupError(
            f"this is Spark {spark.version}; the runner needs 3.5 or 4.x.",
            "Use a cluster of such a version.",
        )
    if not is_connect(spark) and version != version_of(pyspark.__version__):
        raise SparkSetupError(
            f"pyspark {pyspark.__version__} is installed, but SPARK_HOME has Spark "
            f"{spark.version}.",
            f"Install pyspark {spark.version}, or unset SPARK_HOME.",
        )
