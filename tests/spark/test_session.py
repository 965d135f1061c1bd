"""Whose Spark a pipeline runs on, and that the user's stays as it was."""

import os
import re
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.spark.session.handle import SessionHandle
from beam_spark_runner.spark.session.open_session import open_session

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
ADAPTIVE = "spark.sql.adaptive.enabled"


def run_script(script: str, folder: Path, *launcher: str, **environment: str) -> tuple[str, str]:
    """Run a program in a separate process, since a process has one JVM. Return what it printed.

    ``folder`` is where the script lies; it is not in the checkout and not its own cwd.
    """
    program = folder / "program.py"
    prelude = """
        from beam_spark_runner.options import RunnerConfig
        from beam_spark_runner.spark.session.open_session import open_session
        """
    program.write_text(textwrap.dedent(prelude) + textwrap.dedent(script))
    done = subprocess.run(
        [*(launcher or (sys.executable,)), str(program)],
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


@pytest.mark.slow
def test_nothing_given_starts_a_quiet_local_spark(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("WORD = 'found'")
    script = """
        import sys
        import neighbour

        def probe(batches):
            import neighbour, pyarrow, sys
            for _ in batches:
                pass
            yield pyarrow.record_batch({"x": [neighbour.WORD, sys.executable]})

        with open_session(RunnerConfig(job_name="mine")) as session:
            context = session.spark.sparkContext
            print(session.is_owned, session.is_local, session.is_connect, session.max_task_attempts)
            print(context.master, context.appName, context.uiWebUrl.rpartition(":")[0])
            rows = session.spark.range(0, 1, 1, 1).mapInArrow(probe, "x string").collect()
            print([row.x for row in rows] == ["found", sys.executable])
            session.spark.range(100).repartition(8).count()
        """
    out, err = run_script(script, tmp_path)
    assert out.splitlines() == [
        "True True False 1",
        "local[*] mine http://127.0.0.1",
        "True",
    ]
    assert not [line for line in err.splitlines() if "apitools" not in line]  # Beam's, on import


@pytest.mark.rare
@pytest.mark.slow
def test_pipelines_at_a_time_share_a_spark_of_ours_that_only_an_idle_one_replaces(
    tmp_path: Path,
) -> None:
    script = """
        first, second = open_session(RunnerConfig()), open_session(RunnerConfig())
        context = second.spark.sparkContext
        print(first.spark is second.spark, first.is_owned, second.is_owned)
        first.close()
        first.close()
        print(second.spark.range(3).count())
        second.close()
        print(context._jsc is None)
        with open_session(RunnerConfig(spark_master_url="local[3,2]")) as third:
            print(third.slots(), third.max_task_attempts)
        """
    out, _ = run_script(script, tmp_path)
    assert out.splitlines() == ["False True True", "3", "False", "3 2"]


@pytest.mark.rare
@pytest.mark.slow
def test_spark_submit_decides_the_master_and_keeps_its_context(tmp_path: Path) -> None:
    import pyspark

    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    script = """
        with open_session(RunnerConfig()) as session:
            context = session.spark.sparkContext
            print(context.master, session.max_task_attempts)
        print(context._jsc is not None)
        """
    out, _ = run_script(
        script, tmp_path, submit, "--master", "local[1,3]", PYSPARK_PYTHON=sys.executable
    )
    assert out.splitlines()[-2:] == ["local[1,3] 3", "True"]  # before them the program's stderr


@pytest.mark.rare
@pytest.mark.slow
def test_users_own_settings_win(tmp_path: Path) -> None:
    conf = (
        ("spark.sql.adaptive.enabled", "true"),
        ("spark.ui.enabled", "false"),
        ("spark.executorEnv.PYTHONPATH", "/elsewhere"),
    )
    script = f"""
        config = RunnerConfig(spark_conf={conf!r}, spark_master_url="local[1]")
        with open_session(config) as session:
            print([session.spark.conf.get(key) for key, _ in {conf!r}])
            print(session.spark.sparkContext.uiWebUrl)
        """
    out, _ = run_script(script, tmp_path)
    assert out.splitlines() == [str([value for _, value in conf]), "None"]


@pytest.fixture
def session(spark_session: Any) -> Iterator[SessionHandle]:
    with open_session(RunnerConfig(), spark_session) as handle:
        yield handle


def test_a_given_session_is_used_but_not_touched(spark_session: Any) -> None:
    before = spark_session.conf.get(ADAPTIVE)
    config = RunnerConfig(spark_conf=(("spark.sql.shuffle.partitions", "7"),))
    with open_session(config, spark_session) as handle:
        assert not handle.is_owned
        assert handle.spark is not spark_session
        assert handle.spark.sparkContext is spark_session.sparkContext
        assert handle.spark.conf.get(ADAPTIVE) == "false"
        assert handle.spark.conf.get("spark.sql.shuffle.partitions") == "7"
        assert spark_session.conf.get(ADAPTIVE) == before
        assert spark_session.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark_session.range(3).count() == 3


def test_facts_of_a_local_session(session: SessionHandle) -> None:
    assert (session.slots(), session.max_task_attempts, session.is_local) == (2, 1, True)
    assert session.version >= (3, 5)
    assert session.master == "local[2]"


def test_the_active_session_is_found_by_any_thread(spark_session: Any) -> None:
    found: list[Any] = []

    def look() -> None:
        with open_session(RunnerConfig()) as handle:
            found.append(handle.spark.sparkContext)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [spark_session.sparkContext]


def test_another_master_than_the_active_sessions_is_an_error(spark_session: Any) -> None:
    open_session(RunnerConfig(spark_master_url="local[2]")).close()
    with pytest.raises(OptionsError, match="already has a SparkSession on local"):
        open_session(RunnerConfig(spark_master_url="sc://somewhere"))
    with pytest.raises(OptionsError, match=r"local\[4\] is given"):
        open_session(RunnerConfig(spark_master_url="local[4]"), spark_session)


@pytest.mark.connect
@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:9",
        pytest.param("127.0.0.1", marks=pytest.mark.rare),
        pytest.param("[::1]:{port}", marks=pytest.mark.rare),
    ],
)
def test_another_connect_server_than_the_sessions_is_an_error(
    connect_server: str, address: str
) -> None:
    from pyspark.sql.connect.session import SparkSession

    port = connect_server.rpartition(":")[2]
    wanted = f"sc://{address.format(port=port)}"
    session = SparkSession.builder.remote(connect_server).create()
    try:
        same = RunnerConfig(spark_master_url=f"{connect_server}/;user_agent=tests")
        open_session(same, session).close()
        with pytest.raises(OptionsError, match=re.escape(f"a SparkSession on {connect_server};")):
            open_session(RunnerConfig(spark_master_url=wanted), session)
    finally:
        session.stop()


def test_what_only_a_new_session_can_have_is_an_error(spark_session: Any) -> None:
    config = RunnerConfig(spark_conf=(("spark.executor.memory", "9g"),))
    with pytest.raises(OptionsError, match=r"spark\.executor\.memory cannot be changed"):
        open_session(config, spark_session)
    # What it has already is not a change.
    open_session(RunnerConfig(spark_conf=(("spark.ui.enabled", "false"),)), spark_session).close()


def cancel_a_job_that_never_ends(session: SessionHandle, tag: str) -> tuple[float, BaseException]:
    """Return how long it took to end, in seconds, and what its thread saw."""
    seen: list[BaseException] = []

    def never_end(batches: Any) -> Any:
        import time

        for batch in batches:
            time.sleep(600)
            yield batch

    def run() -> None:
        try:
            with session.job_scope(tag, "a job that never ends"):
                session.spark.range(0, 4, 1, 2).mapInArrow(never_end, "id long").collect()
        except Exception as error:
            seen.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    # The job need not have begun: whoever cancels calls again until the thread has ended.
    start = time.monotonic()
    while thread.is_alive() and time.monotonic() - start < 60:
        session.cancel(tag)
        thread.join(0.5)
    assert seen, "the job was not cancelled"
    return time.monotonic() - start, seen[0]


def check_that_its_slots_are_free(session: SessionHandle) -> None:
    start = time.monotonic()
    both = session.spark.range(0, 2, 1, 2).mapInArrow(lambda batches: batches, "id long")
    assert both.count() == 2
    assert time.monotonic() - start < 60


@pytest.mark.rare
def test_cancel(session: SessionHandle) -> None:
    cancel_a_job_that_never_ends(session, "classic")
    check_that_its_slots_are_free(session)


def test_a_scope_leaves_the_thread_as_it_was(session: SessionHandle) -> None:
    context = session.spark.sparkContext
    context.setJobDescription("mine")
    context.setLocalProperty("spark.scheduler.pool", "mine, too")
    for pool in (None, "a pool"):
        session.pool = pool
        with session.job_scope("some tag", "a stage"):
            assert context.getLocalProperty("spark.job.description") == "a stage"
            assert context.getLocalProperty("spark.scheduler.pool") == (pool or "mine, too")
            assert "some tag" in context.getJobTags()
        assert context.getLocalProperty("spark.job.description") == "mine"
        assert context.getLocalProperty("spark.scheduler.pool") == "mine, too"
        assert "some tag" not in context.getJobTags()
    context.setJobDescription(None)
    context.setLocalProperty("spark.scheduler.pool", None)


CONNECT = """
    from pyspark.sql.connect.session import SparkSession
    config = RunnerConfig(spark_master_url={url!r})
    """


@pytest.mark.connect
@pytest.mark.slow
class TestConnect:
    """Each in a separate process: pyspark's switch between the two kinds is global."""

    def run(self, script: str, folder: Path, url: str, **environment: str) -> list[str]:
        text = textwrap.dedent(CONNECT.format(url=url)) + textwrap.dedent(script)
        return run_script(text, folder, **environment)[0].splitlines()

    def test_session_of_our_own(self, connect_server: str, tmp_path: Path) -> None:
        script = """
            with open_session(config) as session:
                print(session.is_owned, session.is_connect, session.is_local, session.slots())
                print(session.master, session.max_task_attempts)
                print(session.spark.conf.get("spark.sql.adaptive.enabled"))
            print(session.spark.is_stopped)
            """
        assert self.run(script, tmp_path, connect_server) == [
            "True True False 2",
            "local[2] 1",
            "false",
            "True",
        ]

    @pytest.mark.rare
    def test_session_of_the_environment(self, connect_server: str, tmp_path: Path) -> None:
        script = """
            with open_session(RunnerConfig()) as session:
                print(session.is_owned, session.is_connect)
            """
        out = self.run(script, tmp_path, connect_server, SPARK_REMOTE=connect_server)
        assert out == ["True True"]

    @pytest.mark.parametrize(
        "how",
        [
            "active",
            pytest.param("given", marks=pytest.mark.rare),
            pytest.param("no cloning", marks=pytest.mark.rare),
            pytest.param("no second session", marks=pytest.mark.rare),
        ],
    )
    def test_users_session_stays_as_it_was(
        self, connect_server: str, tmp_path: Path, how: str
    ) -> None:
        # Older versions cannot clone; an address with a session id leaves no other session.
        script = f"""
            how = {how!r}
            users = SparkSession.builder.remote(
                config.spark_master_url
                + ("/;session_id=00112233-4455-6677-8899-aabbccddeeff" * (how[-1] == "n"))
            ).create()
            users.conf.set("spark.sql.shuffle.partitions", "5")
            if how.startswith("no "):
                SparkSession.cloneSession = None
            given = users if how == "given" else None
            own = RunnerConfig(spark_conf=(("spark.sql.shuffle.partitions", "7"),))
            with open_session(own, given) as session:
                print(session.is_owned, session.spark is users, session.spark.range(3).count())
                print(session.spark.conf.get("spark.sql.shuffle.partitions"),
                      session.spark.conf.get("spark.sql.adaptive.enabled"))
            print(users.conf.get("spark.sql.shuffle.partitions"),
                  users.conf.get("spark.sql.adaptive.enabled"), users.range(3).count())
            """
        shares = how == "no second session"
        assert self.run(script, tmp_path, connect_server) == [
            f"False {shares} 3",
            "7 false",
            "5 true 3",
        ]

    def test_cancel(self, connect_server: str, tmp_path: Path) -> None:
        # Not defined in the script: the function must travel by value.
        script = f"""
            import sys
            sys.path.insert(0, {str(Path(__file__).parent)!r})
            import test_session
            from pyspark import cloudpickle as sparks
            sparks.register_pickle_by_value(test_session)
            with open_session(config) as session:
                test_session.cancel_a_job_that_never_ends(session, "remote")
                test_session.check_that_its_slots_are_free(session)
            print("cancelled")
            """
        assert self.run(script, tmp_path, connect_server)[-1:] == ["cancelled"]
