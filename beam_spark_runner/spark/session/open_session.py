"""Opens the Spark session of a pipeline: the user's if there is one, otherwise a new one."""

import contextlib
import os
import sys
from typing import Any

import pyspark

from beam_spark_runner.core.errors import OptionsError, SparkSetupError
from beam_spark_runner.spark import pyspark_internals
from beam_spark_runner.spark.session import own_spark
from beam_spark_runner.spark.session.conf import (
    WISHED,
    WORKER_PYTHON,
    SparkSettings,
    get_conf,
    has_any_python,
    is_connect,
    is_of_context,
    session_settings,
    set_conf,
)
from beam_spark_runner.spark.session.handle import SessionHandle, release_connect_session
from beam_spark_runner.spark.session.launch import (
    addresses_in,
    silence_pandas_opinion,
    start_classic,
    start_connect,
    without_token,
)
from beam_spark_runner.spark.versions import SparkVersion


def open_session(config: SparkSettings, given_session: Any = None) -> SessionHandle:
    """Find or start the Spark to run on.

    In this order: the session that the runner was given; the active or default
    session of this process; ``--spark_master_url``; the Connect server that
    SPARK_REMOTE names; the master that spark-submit or the user's Spark
    configuration chose; ``local[*]``.

    A Spark that is started here continues after its last pipeline, for the next one. If that asks
    for another Spark, the former one ends first.

    Args:
        config: the options; Spark's own are in ``spark_conf``.
        given_session: a SparkSession, classic or Connect.

    Raises:
        SparkSetupError: no usable Spark; the text says why and what to do.
        OptionsError: an option contradicts the existing session.
    """
    silence_pandas_opinion()
    with own_spark.locked():
        own_spark.prepare_for(config, is_given=given_session is not None)
        spark = given_session if given_session is not None else _existing_session()
        if spark is None:
            spark = _start(config)
            own_spark.set_current(spark, config)
        _check_alive(spark)
        own = own_spark.current()
        if own is None or spark is not own.spark:
            _check_master(spark, config)
            return _prepare_isolated(spark, config, owner=None)
        if given_session is not None or own.users:
            _check_master(spark, config)
        use = own_spark.Use(own, config)
        try:
            return _prepare_isolated(spark, config, owner=use)
        except BaseException:
            use.release()
            raise


def is_there(spark: Any) -> bool:
    """Whether the JVM of a session still runs. On Spark Connect True: a server may come back."""
    return is_connect(spark) or pyspark_internals.does_jvm_answer()


def _start(config: SparkSettings) -> Any:
    master, remote = config.spark_master_url, os.environ.get("SPARK_REMOTE")
    user_conf = dict(config.spark_conf)
    if master is not None and master.startswith("sc://"):
        return start_connect(master, user_conf)
    if remote and master is not None:
        raise OptionsError(
            "spark_master_url",
            f"{master} is given, but the environment variable SPARK_REMOTE names a Spark "
            "Connect server; unset one of the two",
        )
    if remote:
        return start_connect(None, user_conf)
    return start_classic(
        master,
        config.job_name,
        user_conf,
        is_for_many=True,
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
    wanted_url = config.spark_master_url
    if wanted_url is None:
        return
    if is_connect(spark):
        actual = f"sc://{pyspark_internals.server_of(spark)}"
        is_same = wanted_url.startswith("sc://") and (
            [*addresses_in(wanted_url)] == [*addresses_in(actual)]
        )
    else:
        actual = spark.sparkContext.master
        is_same = wanted_url == actual
    if not is_same:
        raise OptionsError(
            "spark_master_url",
            f"{without_token(wanted_url)} is given, but this process already has a SparkSession on "
            f"{actual}; leave the option out to use that session, or stop the session first",
        )


_BUSY: list[Any] = []
"""Sessions whose settings are changed while a pipeline runs in them."""


def _prepare_isolated(
    spark: Any, config: SparkSettings, owner: own_spark.Use | None
) -> SessionHandle:
    own = _second_session(spark)
    if own is not None:
        return _prepare(own, config, owner, is_shared=True, program=spark)
    if spark in _BUSY:
        raise SparkSetupError(
            "another pipeline runs in this SparkSession, and Spark cannot create a second one.",
            "Wait for that pipeline, or use another session: one whose URL has no session_id.",
        )
    return _prepare(spark, config, owner, is_shared=True, restores=True)


def _second_session(spark: Any) -> Any:
    """Return another session on the same Spark as ``spark``, or None where none can be had."""
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


def _prepare(
    spark: Any,
    config: SparkSettings,
    owner: own_spark.Use | None,
    *,
    is_shared: bool = False,
    restores: bool = False,
    program: Any = None,
) -> SessionHandle:
    """Set the properties that the runner needs in ``spark``, then those that the user gave."""
    try:
        _check_version(spark)
        previous_values: dict[str, str | None] = {}
        user_conf = dict(config.spark_conf)
        own_conf = session_settings(SparkVersion.parse(spark.version))
        for key, value in own_conf.items():
            if key in user_conf or (key in WISHED and is_of_context(spark, key)):
                continue
            # None: this version of Spark has no such setting.
            if (previous := get_conf(spark, key)) not in (None, value):
                spark.conf.set(key, value)
                previous_values[key] = previous
        if WORKER_PYTHON not in user_conf and has_any_python(spark):
            set_conf(spark, WORKER_PYTHON, sys.executable, previous_values)
        for key, value in user_conf.items() if is_shared else ():
            previous = get_conf(spark, key)
            if previous == value:
                continue
            try:
                spark.conf.set(key, value)
                previous_values.setdefault(key, previous)
            except Exception as error:
                raise OptionsError(
                    "spark_conf",
                    f"{key} cannot be changed in a SparkSession that exists already; "
                    "set it where that session is built",
                ) from error
        handle = SessionHandle(
            spark,
            owner=owner,
            users_values=previous_values if restores else None,
            program=program,
            own_settings=(*own_conf, *previous_values, *user_conf),
        )
        if restores:
            _BUSY.append(spark)
            handle.on_close = lambda: _BUSY.remove(spark)
        return handle
    except BaseException:
        if program is not None and is_connect(spark):
            release_connect_session(spark)
        raise


def _check_version(spark: Any) -> None:
    version = SparkVersion.parse(spark.version)
    if not version.is_served:
        raise SparkSetupError(
            f"this is Spark {spark.version}; the runner needs 3.5 or 4.x.",
            "Use a cluster of such a version.",
        )
    if not is_connect(spark) and version != SparkVersion.parse(pyspark.__version__):
        raise SparkSetupError(
            f"pyspark {pyspark.__version__} is installed, but SPARK_HOME has Spark "
            f"{spark.version}.",
            f"Install pyspark {spark.version}, or unset SPARK_HOME.",
        )
