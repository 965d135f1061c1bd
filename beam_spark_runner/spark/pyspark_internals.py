"""The private names of PySpark that this runner uses.

No other file uses a private name of PySpark's. ``tests/spark/test_pyspark_contact.py`` checks
each of these functions with the oldest and the newest PySpark that is supported.
"""

import atexit
import contextlib
import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from copy import copy as copied
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext, java_gateway

from beam_spark_runner.core.errors import InvariantError

if TYPE_CHECKING:  # it takes a while, and the JVM can start meanwhile
    from py4j.java_gateway import JVMView
    from pyspark.sql import DataFrame, SparkSession


def is_connected_to_jvm() -> bool:
    """Whether this process is connected to a JVM. Its SparkContext may have been stopped."""
    return SparkContext._gateway is not None


def start_jvm(conf: Any = None, start: Callable[..., Any] = subprocess.Popen) -> None:
    """Start the JVM, or connect to the one of ``spark-submit``; nothing if that was done.

    Args:
        conf: a ``SparkConf``, which becomes the arguments of ``spark-submit``. Else a session
            must be made of the same settings for these to count.
        start: starts the process, with the arguments of ``Popen``.
    """
    launcher: Any = java_gateway
    previous, launcher.Popen = launcher.Popen, start
    try:
        SparkContext._ensure_initialized(conf=conf)
    finally:
        launcher.Popen = previous


def folder_of_port(environment: Mapping[str, str]) -> str | None:
    """Return the temporary folder in which a JVM with these variables writes its port."""
    path = environment.get("_PYSPARK_DRIVER_CONN_INFO_PATH")
    return None if path is None else os.path.dirname(path)


def forget_jvm() -> None:
    """Let this process start another JVM: this one has ended, or was not started completely.

    What remains of its objects here no longer sends anything to it.
    """
    gateway: Any = SparkContext._gateway
    if gateway is not None:
        gateway._gateway_client.is_connected = False
    SparkContext._gateway = SparkContext._jvm = None


def forget_context() -> None:
    """Let this process build another context: the JVM of this one has ended, or is not its own."""
    from pyspark.sql import SparkSession

    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def jvm() -> "JVMView | None":
    """Return the JVM that this process is connected to."""
    return SparkContext._jvm


def does_jvm_answer() -> bool:
    """Whether the JVM that this process is connected to is still there."""
    java: Any = jvm()
    try:
        java.java.lang.System.nanoTime()
    except (Py4JError, OSError):
        return False
    return True


@contextlib.contextmanager
def active(session: "SparkSession") -> Iterator[None]:
    """Make a classic session the active one of this thread, for the context.

    Spark looks catalogs up in the settings of the active session, whichever session it is asked
    for; a new thread has none.
    """
    theirs: Any = session
    java: Any = jvm()
    sessions = getattr(java, theirs._jsparkSession.getClass().getName())
    previous = sessions.getActiveSession()
    sessions.setActiveSession(theirs._jsparkSession)
    try:
        yield
    finally:
        if previous.isDefined():
            sessions.setActiveSession(previous.get())
        else:
            sessions.clearActiveSession()


def have_jvm_ignore_sigterm() -> None:
    """Let this process alone decide what SIGTERM does, also if its whole process group gets it.

    PySpark starts the JVM with the same for Ctrl-C. The JVM ends with this process, however that
    ends: then its stdin does.
    """
    java: Any = jvm()
    misc = java.sun.misc  # of the module jdk.unsupported, which every JDK has
    with contextlib.suppress(Py4JJavaError):  # with -Xrs the JVM leaves signals to the system
        misc.Signal.handle(misc.Signal("TERM"), misc.SignalHandler.SIG_IGN)


@contextlib.contextmanager
def sigint_left_alone() -> Iterator[None]:
    """Keep a SparkContext that is made meanwhile from handling Ctrl-C: it would cancel all jobs."""
    module: Any = sys.modules[SparkContext.__module__]
    previous = module.signal
    module.signal = SimpleNamespace(SIGINT=signal.SIGINT, signal=lambda *_: None)
    try:
        yield
    finally:
        module.signal = previous


def have_socket_removed() -> None:
    """Have the socket removed, at the end, at which Python takes values of accumulators.

    PySpark removes it only if the context is stopped, which a program may not live to do: then the
    JVM removes it when it ends, unless that is killed, or its call is interrupted, and so cannot
    be asked; then this process does. Nothing is done if there is no context, or only a half of one.
    """
    context: Any = SparkContext._active_spark_context
    address = getattr(getattr(context, "_accumulatorServer", None), "server_address", None)
    java: Any = jvm()
    if isinstance(address, str):  # else it is a port
        atexit.register(_remove_socket, address, os.getpid())
        with contextlib.suppress(Py4JError, OSError):  # the JVM may have ended
            java.java.io.File(address).deleteOnExit()


def _remove_socket(address: str, pid: int) -> None:
    if os.getpid() == pid:  # not a forked child, which has inherited the callback
        Path(address).unlink(missing_ok=True)


def has_context() -> bool:
    """Whether this process has a SparkContext that was not stopped."""
    return SparkContext._active_spark_context is not None


def is_stopped(context: Any) -> bool:
    """Whether a SparkContext was stopped in this process."""
    return context._jsc is None


def has_ended(context: Any) -> bool:
    """Whether a SparkContext was stopped, or its application has ended: killed, or lost.

    Raises:
        Py4JError: the JVM does not answer.
    """
    return is_stopped(context) or bool(scala_context(context).isStopped())


def scala_context(context: Any) -> Any:
    """Return Scala's SparkContext: it has trackers and stores of jobs that Python's lacks."""
    return context._jsc.sc()


def gauge(context: Any, name: str) -> Any:
    """Return a new gauge of Spark's metrics system, for ``set_gauge``. It lasts as long as Spark.

    It is an accumulator, in the source ``AccumulatorSource``. A second one of a name has no effect.

    Source: Spark ``org.apache.spark.metrics.source.DoubleAccumulatorSource``; experimental.
    """
    java: Any = jvm()
    accumulator = scala_context(context).doubleAccumulator(name)
    by_name = java.PythonUtils.toScalaMap({name: accumulator})
    # Its class has a method of the same name, so that Java has no static one.
    source = getattr(java.org.apache.spark.metrics.source, "DoubleAccumulatorSource$")
    getattr(source, "MODULE$").register(scala_context(context), by_name)
    return accumulator


def set_gauge(gauge: Any, value: float) -> None:
    """Set the value of a gauge."""
    gauge.setValue(float(value))  # Py4J makes an Integer of an int, and finds no such method


def jobs_so_far(context: Any) -> int | None:
    """Return how many Spark jobs a SparkContext has begun; None: its JVM does not answer.

    It is the scheduler's own number. Status stores get to know a job later, and forget old ones.
    """
    try:
        return int(scala_context(context).dagScheduler().numTotalJobs())
    except (Py4JError, OSError):
        return None


def is_of_sessions(key: str) -> bool:
    """Whether a setting may be changed in a session that exists; else only a new Spark has it."""
    java: Any = jvm()
    conf = java.org.apache.spark.sql.internal.SQLConf.get()
    return bool(conf.isModifiable(key))


def executors(context: Any) -> frozenset[str]:
    """Return the ids of the executors that are up; in local mode, none."""
    ids = scala_context(context).getExecutorIds().mkString(",")
    return frozenset(filter(None, ids.split(",")))


def temporary_folder(context: Any) -> str | None:
    """Return a folder on the driver's machine that the JVM deletes when it ends."""
    folder: str | None = getattr(context, "_temp_dir", None)
    return folder


def default_session() -> "SparkSession | None":
    """Return the classic session that ``getOrCreate`` would find in any thread."""
    from pyspark.sql import SparkSession

    return SparkSession._instantiatedSession


def default_connect_session(remote: Any) -> Any:
    """Return the session that Spark Connect's ``getOrCreate`` would find in any thread.

    Args:
        remote: the class ``pyspark.sql.connect.session.SparkSession``.
    """
    return remote._default_session


def new_connect_session(spark: Any) -> Any:
    """Return another session of the same user on a Spark Connect server, without its settings.

    None: the address itself names the one session to use.
    """
    builder = spark.client._builder
    if builder.session_id is not None:
        return None
    return type(spark)(connection=builder, userId=spark.client._user_id)


def server_of(spark: Any) -> str:
    """Return HOST:PORT of the server of a session of Spark Connect; some channels have no port."""
    builder = spark.client._builder
    return str(getattr(builder, "endpoint", None) or builder.host)


def interrupt_in(spark: Any, session_id: str, tag: str | None) -> None:
    """Interrupt what runs in another session of a Connect server, under a tag unless it is None."""
    client = copied(spark.client)
    client._session_id, client._server_session_id = session_id, None
    if tag is None:
        client.interrupt_all()
    else:
        client.interrupt_tag(tag)


def plan_text(frame: Any) -> str:
    """Return what ``explain`` prints for a frame of Spark Connect."""
    return str(frame._explain_string())


def bind_checkpoint(checkpoint: "DataFrame", session: Any) -> None:
    """Bind the result of ``localCheckpoint`` to the session that made it.

    Spark Connect's client binds it to the process's active session, which is the user's, and
    whose end would release the rows. Nothing is done to a classic frame.
    """
    reference = getattr(checkpoint, "_plan", None)
    if reference is not None:
        bound: Any = checkpoint
        bound._session = reference._spark_session = session


def in_session(frame: "DataFrame", session: Any) -> "DataFrame":
    """Return a frame that a session runs, by its own settings, although another one made it.

    Both are sessions of one Spark: what the frame reads is found already (classic), or found by
    its name (Connect).
    """
    internal: Any = frame
    plan = getattr(internal, "_plan", None)
    if plan is not None:
        # Spark 3.5 has another constructor.
        with_plan: Any = getattr(type(frame), "withPlan", type(frame))
        copy_in_session: DataFrame = with_plan(plan, session)
        return copy_in_session
    java = jvm()
    name: str = internal._jdf.getClass().getName()
    dataset: Any = functools.reduce(getattr, name.split("."), java)
    analyzed = internal._jdf.queryExecution().analyzed()
    return type(frame)(dataset.ofRows(session._jsparkSession, analyzed), session)


def schema_json(frame: "DataFrame") -> str:
    """Return a frame's schema as Spark's JSON.

    With classic Spark, it loads no classes of Python that the schema names, as those of files may.
    """
    java: Any = getattr(frame, "_jdf", None)
    return frame.schema.json() if java is None else str(java.schema().json())


def java_cause(error: BaseException) -> Any:
    """Return the Java exception that an exception of PySpark's or Py4J's stands for, or None."""
    return getattr(error, "_origin", None) or getattr(error, "java_exception", None)


def broadcasts_of_next_closure(context: SparkContext) -> Any:
    """Return the set to which a ``Broadcast`` adds itself when it is pickled."""
    return context._pickled_broadcast_vars


def path_of_broadcast(broadcast: Any) -> str | None:
    """Return the file with a broadcast's pickled value, on a worker. None: it is in memory."""
    path: str | None = getattr(broadcast, "_path", None)
    return path


def delete_path(spark: "SparkSession", url: str) -> None:
    """Delete a file, or a folder with all that is in it, on a file system of Hadoop's, if any."""
    java: Any = jvm()
    path = java.org.apache.hadoop.fs.Path(url)
    path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()).delete(path, True)


def physical_plan(frame: "DataFrame") -> Any:
    """Return how Spark would compute a frame of a classic session, for ``copy_to_run``.

    Raises:
        InvariantError: the session has adaptive execution, whose plans remember what they ran.
    """
    plan: Any = frame._jdf.queryExecution().executedPlan()
    if plan.nodeName() == "AdaptiveSparkPlan":
        raise InvariantError("an adaptive plan cannot run again")
    return plan


def serve_session(spark: "SparkSession") -> None:
    """Have Spark jobs of this thread run as jobs of a classic session, for ``collect``.

    Its settings become local properties, in which tasks look for them.
    """
    activate_session(spark)
    for key, value in spark.sql("SET").collect():
        if key.startswith("spark.") and "(redacted)" not in value:
            spark.sparkContext.setLocalProperty(key, value)


def activate_session(spark: "SparkSession") -> None:
    """Have physical plans that this thread makes belong to a classic session.

    It becomes the active session of the JVM's thread, and not of Python's process.
    """
    session = spark._jsparkSession
    name: str = session.getClass().getName()
    java_class: Any = functools.reduce(getattr, name.split("."), jvm())
    java_class.setActiveSession(session)


def copy_to_run(plan: Any) -> Any:
    """Return a copy of a physical plan that is ready to run, once.

    A plan that has run would run nothing: its nodes remember their shuffles, and read these again.

    Args:
        plan: see ``physical_plan``. See ``activate_session`` for the thread.
    """
    copy = plan.clone()
    copy.execute()  # runs nothing: each exchange remembers how to compute its input
    return copy


def collect(copy: Any) -> list[bytes]:
    """Run a plan, and return the values of its only column, which is binary.

    Args:
        copy: see ``copy_to_run``. See ``serve_session`` for the thread.
    """
    return [bytes(row.getBinary(0)) for row in copy.executeCollect()]
