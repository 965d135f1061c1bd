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


def open_session(config: SparkSettings, given: Any = None) -> SessionHandle:
    """Find or start the Spark to run on.

    In this order: the session that the runner was given; the active or default
    session of this process; ``--spark_master_url``; the Connect server that
    SPARK_REMOTE names; the master that spark-submit or the user's Spark
    configuration chose; ``local[*]``.

    A Spark that is started here continues after its last pipeline, for the next one. If that asks
    for another Spark, the former one ends first.

    Args:
        config: the options; Spark's own are in ``spark_conf``.
        given: a SparkSession, classic or Connect.

    Raises:
        SparkSetupError: no usable Spark; the text says why and what to do.
        OptionsError: an option contradicts the existing session.
    """
    silence_pandas_opinion()
    with own_spark.locked():
        own_spark.prepare_for(config, is_given=given is not None)
        found = given if given is not None else _existing_session()
        if found is None:
            found = _start(config)
            own_spark.keep(found, config)
        _check_alive(found)
        own = own_spark.current()
        if own is None or found is not own.spark:
            _check_master(found, config)
            return _prepared_isolated(found, config, owner=None)
        if given is not None or own.users:
            _check_master(found, config)
        use = own_spark.Use(own, config)
        try:
            return _prepared_isolated(found, config, owner=use)
        except BaseException:
            use.release()
            raise


def is_there(spark: Any) -> bool:
    """Whether the JVM of a session still runs. On Spark Connect True: a server may come back."""
    return is_connect(spark) or pyspark_internals.jvm_answers()


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
        config.job_name,
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


def _prepared_isolated(
    spark: Any, config: SparkSettings, owner: own_spark.Use | None
) -> SessionHandle:
    own = _second_session(spark)
    if own is not None:
        return _prepared(own, config, owner, is_shared=True, program=spark)
    if spark in _BUSY:
        raise SparkSetupError(
            "another pipeline runs in this SparkSession, and Spark cannot create a second one.",
            "Wait for that pipeline, or use another session: one whose URL has no session_id.",
        )
    return _prepared(spark, config, owner, is_shared=True, restores=True)


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


def _prepared(
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
        changed: dict[str, str | None] = {}
        given = dict(config.spark_conf)
        ours = session_settings(SparkVersion.of(spark.version))
        for key, value in ours.items():
            if key in given or (key in WISHED and is_of_context(spark, key)):
                continue
            # None: this version of Spark has no such setting.
            if (before := get_conf(spark, key)) not in (None, value):
                spark.conf.set(key, value)
                changed[key] = before
        if WORKER_PYTHON not in given and has_any_python(spark):
            set_conf(spark, WORKER_PYTHON, sys.executable, changed)
        for key, value in given.items() if is_shared else ():
            before = get_conf(spark, key)
            if before == value:
                continue
            try:
                spark.conf.set(key, value)
                changed.setdefault(key, before)
            except Exception as error:
                raise OptionsError(
                    "spark_conf",
                    f"{key} cannot be changed in a SparkSession that exists already; "
                    "set it where that session is built",
                ) from error
        handle = SessionHandle(
            spark,
            owner=owner,
            changed=changed if restores else None,
            program=program,
            given=(*ours, *changed, *given),
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
    version = SparkVersion.of(spark.version)
    if not version.is_served:
        raise SparkSetupError(
            f"this is Spark {spark.version}; the runner needs 3.5 or 4.x.",
            "Use a cluster of such a version.",
        )
    if not is_connect(spark) and version != SparkVersion.of(pyspark.__version__):
        raise SparkSetupError(
            f"pyspark {pyspark.__version__} is installed, but SPARK_HOME has Spark "
            f"{spark.version}.",
            f"Install pyspark {spark.version}, or unset SPARK_HOME.",
        )
