"""Where this project touches PySpark's internals: an upgrade that breaks something fails here."""

import inspect
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark import Broadcast, SparkContext, TaskContext, daemon, java_gateway
from pyspark import worker as pyspark_worker
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.spark import pyspark_internals
from beam_spark_runner.spark.broadcast import broadcast_file
from beam_spark_runner.spark.driver.database import (
    JavaDatabase,
    is_away,
    reason_of_database,
    state_of,
)


@pytest.mark.spark
def test_the_jvm_and_its_context(spark_session: SparkSession) -> None:
    context = spark_session.sparkContext
    assert pyspark_internals.is_connected_to_jvm()
    assert list(inspect.signature(SparkContext._ensure_initialized).parameters) == [
        "instance",
        "gateway",
        "conf",
    ]
    assert "_PYSPARK_DRIVER_CONN_INFO_PATH" in inspect.getsource(java_gateway.launch_gateway)
    assert vars(java_gateway)["Popen"] is subprocess.Popen
    pyspark_internals.start_jvm()  # there is one: nothing happens
    jvm = pyspark_internals.jvm()
    assert jvm is not None
    assert jvm.java.lang.Math.max(3, 4) == 4
    assert pyspark_internals.does_jvm_answer()
    assert pyspark_internals.has_context()
    assert not pyspark_internals.is_stopped(context)
    assert pyspark_internals.scala_context(context).applicationId() == context.applicationId
    assert len(pyspark_internals.scala_context(context).statusTracker().getJobIdsForTag("x")) == 0
    assert pyspark_internals.scala_context(context).statusStore() is not None


@pytest.mark.spark
def test_connections_of_its_source_jdbc(spark_session: SparkSession, tmp_path: Path) -> None:
    java: Any = pyspark_internals.jvm()
    java.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    database = JavaDatabase({"url": "jdbc:derby:memory:contact;create=true", "dbtable": "t"})
    with database.transaction() as transaction:
        transaction.execute("CREATE TABLE t (id INT, name VARCHAR(9))")
        transaction.execute("INSERT INTO t VALUES (1, NULL)")

    def fail() -> None:
        with database.transaction() as transaction:
            transaction.execute("INSERT INTO t VALUES (2, NULL)")
            transaction.execute("INSERT INTO nowhere VALUES (2)")

    with pytest.raises(Py4JJavaError) as raised:
        fail()
    assert state_of(raised.value) == "42X05"
    assert "NOWHERE" in reason_of_database(raised.value)
    assert not is_away(raised.value)
    with database.transaction() as transaction:
        assert transaction.query("SELECT * FROM t") == [("1", None)]


def test_its_handler_of_ctrl_c() -> None:
    module = inspect.getmodule(SparkContext)
    assert vars(module)["signal"] is signal
    assert inspect.getsource(SparkContext).count("signal.signal(signal.SIGINT") == 1
    with pyspark_internals.sigint_left_alone():
        before = signal.getsignal(signal.SIGINT)
        vars(module)["signal"].signal(signal.SIGINT, signal.SIG_IGN)
        assert signal.getsignal(signal.SIGINT) is before
    assert vars(module)["signal"] is signal


@pytest.mark.spark
def test_the_socket_of_accumulators(spark_session: SparkSession) -> None:
    context: Any = spark_session.sparkContext
    assert isinstance(context._accumulatorServer.server_address, str | tuple)
    pyspark_internals.have_socket_removed()


@pytest.mark.spark
def test_the_number_of_jobs_is_known_at_once(spark_session: SparkSession) -> None:
    context = spark_session.sparkContext
    before = pyspark_internals.jobs_so_far(context)
    assert before is not None
    context.parallelize([1], 1).count()
    assert pyspark_internals.jobs_so_far(context) == before + 1


@pytest.mark.spark
def test_the_active_session_of_a_thread(spark_session: SparkSession) -> None:
    second = spark_session.newSession()
    second.conf.set("spark.contact", "second")

    def name() -> str | None:
        java: Any = pyspark_internals.jvm()
        sessions = getattr(java, second._jsparkSession.getClass().getName())
        found = sessions.getActiveSession()
        return found.get().conf().get("spark.contact", "first") if found.isDefined() else None

    def names() -> list[str | None]:
        """Return the active session outside, within and after each of two contexts."""
        found = [name()]
        with pyspark_internals.active(second):
            found.append(name())
            with pyspark_internals.active(spark_session):
                found.append(name())
            found.append(name())
        return [*found, name()]

    with ThreadPoolExecutor(1) as pool:  # a thread that has none
        assert pool.submit(names).result() == [None, "second", "first", "second", None]


@pytest.mark.spark
def test_gauges_of_its_metrics_system(spark_session: SparkSession) -> None:
    gauge = pyspark_internals.gauge(spark_session.sparkContext, "contact")
    pyspark_internals.set_gauge(gauge, 3)
    assert gauge.value() == 3
    pyspark_internals.gauge(spark_session.sparkContext, "contact")  # of a name that is known


@pytest.mark.spark
def test_facts_of_a_local_session(spark_session: SparkSession) -> None:
    context = spark_session.sparkContext
    assert pyspark_internals.executors(context) == frozenset()
    folder = pyspark_internals.temporary_folder(context)
    assert folder is not None  # it is deleted with its context
    assert Path(folder).is_dir()
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(pyspark_internals.default_session).result() is spark_session


def test_a_stopped_context_is_seen() -> None:
    # ``SparkContext.stop`` takes it away; the source is looked at, since others need this one.
    assert "self._jsc = None" in inspect.getsource(SparkContext.stop)


@pytest.mark.spark
def test_a_java_exception_is_found(spark_session: SparkSession) -> None:
    with pytest.raises((PySparkException, Py4JJavaError)) as caught:  # 3.5 has the latter
        spark_session.sql("select raise_error('no')").collect()
    cause = pyspark_internals.java_cause(caught.value)
    assert cause is not None
    assert "no" in cause.toString()
    assert pyspark_internals.java_cause(ValueError()) is None


@pytest.mark.spark
def test_a_checkpoint_of_a_classic_session_stays_as_it_is(spark_session: SparkSession) -> None:
    checkpoint = spark_session.range(3).localCheckpoint()
    pyspark_internals.bind_checkpoint(checkpoint, None)
    assert checkpoint.sparkSession is spark_session


@pytest.mark.spark
def test_a_frame_runs_in_another_session(spark_session: SparkSession) -> None:
    spark_session.range(3).createOrReplaceTempView("only_here")
    other = spark_session.newSession()
    other.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    frame = spark_session.sql("SELECT id, current_timezone() AS zone FROM only_here")
    moved = pyspark_internals.in_session(frame, other)
    assert moved.sparkSession is other
    assert [row.id for row in moved.collect()] == [0, 1, 2]
    assert moved.schema == frame.schema


@pytest.mark.spark
def test_a_broadcast_registers_itself_and_has_a_path_on_workers(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"content")
    broadcast: Broadcast[Any] = broadcast_file(spark_session.sparkContext, tmp_path / "file")

    def look(_: Any) -> list[tuple[bool, bytes]]:
        path = pyspark_internals.path_of_broadcast(broadcast)
        return [(path is not None and Path(path).is_file(), broadcast.value)]

    found = spark_session.sparkContext.parallelize([0], 1).mapPartitions(look).collect()
    assert found == [(True, b"content")]


@pytest.mark.spark
@pytest.mark.connect
def test_sessions_and_plans_of_spark_connect(connect_server: str) -> None:
    remote = pytest.importorskip("pyspark.sql.connect.session").SparkSession
    session = remote.builder.remote(connect_server).create()
    try:
        assert "Range" in pyspark_internals.plan_text(session.range(1))
        assert f"sc://{pyspark_internals.server_of(session)}" == connect_server
        another: Any = pyspark_internals.new_connect_session(session)
        id_ = another.session_id
        assert id_ != session.session_id
        assert another.range(2).count() == 2
        pyspark_internals.interrupt_in(session, another.session_id, "no such tag")
        moved = pyspark_internals.in_session(session.range(3), another)
        assert moved.sparkSession is another
        assert moved.count() == 3
        pyspark_internals.interrupt_in(session, id_, None)
        another.stop()
        pyspark_internals.default_connect_session(remote)  # raises if there is no such name
        if session.version >= "4":
            checkpoint = session.range(3).localCheckpoint()
            pyspark_internals.bind_checkpoint(checkpoint, session)
            assert checkpoint.count() == 3
            assert checkpoint._plan._spark_session is session
    finally:
        session.stop()


def test_the_daemon_calls_its_worker_by_position() -> None:
    # ``spark.task.daemon`` puts a separate function in this place.
    assert list(inspect.signature(daemon.worker).parameters) == ["sock", "authenticated"]
    assert "worker(sock, authenticated)" in inspect.getsource(daemon.manager)


def test_the_daemon_runs_the_next_task_by_our_main_function() -> None:
    """A worker that hosts something waits when it is told to end."""
    program = """
import socket
from pyspark import worker
def is_told_to_end(infile, outfile):
    raise SystemExit(0)
worker.main = is_told_to_end
from pyspark import daemon
from beam_spark_runner.spark.worker import hosting
hosting.hosts_shared_objects = lambda: True
hosting.stay_while_hosting(lambda: print("waits", flush=True))
daemon.worker(socket.socketpair()[0], True)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.stdout == "waits\n", ended.stderr
    assert list(inspect.signature(pyspark_worker.main).parameters) == ["infile", "outfile"]


@pytest.mark.spark
def test_a_physical_plan_runs_again(spark_session: SparkSession) -> None:
    session = spark_session.newSession()
    random = "cast(reflect('java.util.UUID', 'randomUUID') as binary) as value"
    frame = session.range(4).selectExpr(random).repartition(2, "value")
    with pytest.raises(InvariantError, match="adaptive"):
        pyspark_internals.physical_plan(frame)
    session.conf.set("spark.sql.adaptive.enabled", "false")
    frame = session.range(4).selectExpr(random).repartition(2, "value")
    with ThreadPoolExecutor(1) as thread:  # what ``serve_session`` sets is its own

        def collect() -> list[list[bytes]]:
            pyspark_internals.serve_session(session)
            plan = pyspark_internals.physical_plan(frame)
            copies = [pyspark_internals.copy_to_run(plan) for _ in range(3)]
            return [pyspark_internals.collect(copy) for copy in copies]

        runs = thread.submit(collect).result()
    assert [len(run) for run in runs] == [4, 4, 4]
    assert len(set().union(*runs)) == 12


@pytest.mark.spark
def test_tasks_of_a_physical_plan_see_the_settings_of_its_session(
    spark_session: SparkSession,
) -> None:
    session = spark_session.newSession()
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")

    def settings(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        zone = context.getLocalProperty("spark.sql.session.timeZone")
        yield pa.RecordBatch.from_pydict({"value": [str(zone).encode()]})
        for _ in batches:
            pass

    with ThreadPoolExecutor(1) as thread:

        def collect() -> list[bytes]:
            pyspark_internals.serve_session(session)
            frame = session.range(0, 1, 1, 1).mapInArrow(settings, "value binary")
            plan = pyspark_internals.physical_plan(frame)
            return pyspark_internals.collect(pyspark_internals.copy_to_run(plan))

        assert thread.submit(collect).result() == [b"Asia/Tokyo"]
    assert SparkSession.getActiveSession() is spark_session


@pytest.mark.spark
def test_a_folder_is_deleted_by_hadoops_client(spark_session: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "with [odd] name"
    (folder / "rows").mkdir(parents=True)
    (folder / "rows" / "part").write_bytes(b"x")
    pyspark_internals.delete_path(spark_session, f"file://{folder}")
    assert not folder.exists()
    pyspark_internals.delete_path(spark_session, f"file://{folder}")  # nothing happens
