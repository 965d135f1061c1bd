"""The Spark that pipelines of one process start, and share one after another."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PRELUDE = """
    import logging, os, signal, sys, threading
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from beam_spark_runner import SparkPortableRunner
    from beam_spark_runner.spark.session import jvm_process
    from pyspark import SparkContext

    logging.getLogger("beam_spark_runner.spark.session").setLevel(logging.INFO)
    logging.basicConfig(format="%(message)s")

    def run(*options):
        given = PipelineOptions(
            ["--runner=SparkPortableRunner", "--spark_conf=spark.ui.enabled=false", *options]
        )
        with beam.Pipeline(options=given) as pipeline:
            pipeline | beam.Create([7]) | beam.GroupBy(lambda x: x) | beam.Map(str)
        context = SparkContext._active_spark_context
        return context and context.applicationId

    def has_ended(pid):
        # A child of this process that nobody waits for is still there, as a zombie.
        try:
            return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            return True

    def jvm():
        return jvm_process._running.pid
    """


def run_program(script: str, folder: Path, *, status: int = 0) -> tuple[list[str], str]:
    """Run a program in a separate process. Return the lines of stdout, and stderr."""
    program = folder / "program.py"
    program.write_text(textwrap.dedent(PRELUDE) + textwrap.dedent(script))
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == status, done.stderr
    return done.stdout.splitlines(), done.stderr


def test_the_next_pipeline_takes_it_unless_it_wants_another(tmp_path: Path) -> None:
    script = """
        first = run("--spark_master_url=local[1]", "--spark_conf=spark.sql.shuffle.partitions=3")
        session = SparkContext._active_spark_context
        # Settings of a session are those of one pipeline.
        print(session.getConf().get("spark.sql.shuffle.partitions"))
        pid = jvm()
        both = []
        threads = [
            threading.Thread(target=lambda: both.append(run("--spark_master_url=local[1]")))
            for _ in range(2)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        print(both == [first, first], jvm() == pid)
        second = run("--spark_master_url=local[2]")
        print(second != first, jvm() != pid, has_ended(pid))
        pid = jvm()
        print(SparkPortableRunner.stop_session(), has_ended(pid))
        print(SparkPortableRunner.stop_session(), SparkContext._active_spark_context)
        """
    out, err = run_program(script, tmp_path)
    assert out == ["None", "True True", "True True True", "True True", "False None"]
    assert re.findall("another Spark is started: (.*)", err) == [
        "it runs on local[1], not on local[2]"
    ]


@pytest.mark.rare
def test_one_with_other_settings_and_one_that_was_stopped_are_replaced(tmp_path: Path) -> None:
    script = """
        first = run("--spark_master_url=local[1]")
        second = run("--spark_master_url=local[1]", "--spark_conf=spark.task.maxFailures=3")
        print(second != first)
        SparkPortableRunner.stop_session()
        print(run("--spark_master_url=local[1]") not in (first, second))
        """
    out, err = run_program(script, tmp_path)
    assert out == ["True", "True"]
    assert re.findall("another Spark is started: (.*)", err) == [
        "another value of spark.task.maxFailures is wanted"
    ]


@pytest.mark.rare
def test_one_that_has_died_or_was_stopped_is_replaced(tmp_path: Path) -> None:
    script = """
        first = run("--spark_master_url=local[1]")
        os.kill(jvm(), signal.SIGKILL)
        os.waitpid(jvm(), 0)
        second = run("--spark_master_url=local[1]")
        print(first != second)
        pid = jvm()
        SparkContext._active_spark_context.stop()  # by the program
        third = run("--spark_master_url=local[1]")
        print(third != second, jvm() == pid)

        idle = threading.Event()
        logging.getLogger("beam_spark_runner.spark.session.own_spark").addFilter(
            lambda record: idle.set() or True
        )
        run("--spark_master_url=local[1]", "--spark_session_idle_timeout=0.001")
        print(idle.wait(60))
        print(run("--spark_master_url=local[1]") not in (first, second, third))
        """
    out, err = run_program(script, tmp_path)
    assert out == ["True", "True True", "True", "True"]
    assert "another Spark is started: its JVM has ended" in err
    assert "Spark is stopped: no pipeline has run for --spark_session_idle_timeout" in err


def test_a_program_that_continues_with_it_keeps_it(tmp_path: Path) -> None:
    script = """
        from pyspark.sql import SparkSession
        from beam_spark_runner.spark.session import own_spark

        first = run("--spark_master_url=local[1]")
        own = own_spark.current()
        spark = SparkSession.builder.getOrCreate()
        print(spark.range(5).count())
        own._on_idle(own)  # the time is over
        print(spark.range(5).count(), run() == first)
        try:
            run("--spark_master_url=local[2]")
        except RuntimeError as error:
            print("already has a SparkSession on local[1]" in str(error))
        print(spark.range(5).count())
        """
    out, err = run_program(script, tmp_path)
    assert out == ["5", "5 True", "True", "5"]
    assert "the program has run its own Spark jobs: Spark is not stopped" in err


@pytest.mark.rare
def test_a_forked_child_has_none(tmp_path: Path) -> None:
    script = """
        import multiprocessing

        def in_child(queue):
            queue.put((SparkPortableRunner.stop_session(), run("--spark_master_url=local[1]")))

        first = run("--spark_master_url=local[1]")
        fork = multiprocessing.get_context("fork")
        queue = fork.Queue()
        child = fork.Process(target=in_child, args=(queue,))
        child.start()
        stopped, other = queue.get()
        child.join()
        print(stopped, other != first, child.exitcode)
        print(run("--spark_master_url=local[1]") == first)
        # The JVM ends with its process, also if a child of that lives on.
        pid = jvm()
        sleeping = os.fork()
        if not sleeping:
            os.close(1)
            os.close(2)
            signal.pause()
        print(pid, sleeping)
        """
    out, _ = run_program(script, tmp_path)
    assert out[:2] == ["False True 0", "True"]
    pid, sleeping = map(int, out[2].split())
    try:
        while Path(f"/proc/{pid}").exists():
            os.sched_yield()
    finally:
        os.kill(sleeping, 9)
