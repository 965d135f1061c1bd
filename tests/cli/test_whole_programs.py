"""A program that is ended from outside, does not wait for its pipeline, or continues after it."""

import re
import signal
import sys
import textwrap
from pathlib import Path

import pytest

from tests.cli.programs import Program, last_words, lines_of, run

pytestmark = [pytest.mark.spark, pytest.mark.slow]

LOCAL = "--spark_master_url=local[2]"
ENDLESS = """
    def beat(x):
        open("beats", "a").close()
        time.sleep(3600)

    with beam.Pipeline(argv=OPTIONS) as p:
        p | beam.Create([1]) | beam.Map(beat)
    """


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize(
    ("number", "code", "last"),
    [
        pytest.param(
            signal.SIGINT,
            -signal.SIGINT,
            "KeyboardInterrupt",
            id="Ctrl-C",
            marks=pytest.mark.rare,
        ),
        pytest.param(signal.SIGTERM, 128 + signal.SIGTERM, None, id="SIGTERM"),
        pytest.param(signal.SIGKILL, -signal.SIGKILL, None, id="kill -9", marks=pytest.mark.rare),
    ],
)
def test_a_signal_leaves_nothing_behind(
    tmp_path: Path, number: signal.Signals, code: int, last: str | None
) -> None:
    program = Program(tmp_path, ENDLESS, LOCAL)
    program.wait_for(tmp_path / "beats")
    program.send(number)
    ended = program.end(60)
    assert ended.code == code
    assert ended.seconds < 30
    lines = lines_of(ended.err)
    assert (lines[-1] if lines else None) == last
    assert not re.search(r"py4j|\.java|\.scala|Exception", ended.err)


TICKS = """
    from apache_beam.transforms.periodicsequence import PeriodicImpulse
    from apache_beam.transforms.window import FixedWindows
    from beam_spark_runner.job.run.job import Job

    def drain(job, drain=Job.drain):
        drain(job)
        open("asked", "w").close()

    Job.drain = drain

    def tick(_):
        open("ticked", "w").close()
        while os.path.exists("blocked"):
            time.sleep(0.05)
        return "key", 1

    pipeline = beam.Pipeline(argv=OPTIONS)
    ticks = pipeline | PeriodicImpulse(fire_interval=0.2) | beam.Map(tick)
    sums = ticks | beam.WindowInto(FixedWindows(1 << 40)) | beam.CombinePerKey(sum)
    sums | beam.Map(lambda pair: open("summed", "w").close())
    print(pipeline.run().wait_until_finish())
"""


@pytest.mark.rare
@pytest.mark.parametrize("is_blocked", [False, pytest.param(True, id="a second one")])
def test_sigterm_may_drain(tmp_path: Path, is_blocked: bool) -> None:
    """The window has no end, so that it closes with the end of its input alone."""
    if is_blocked:
        (tmp_path / "blocked").touch()
    program = Program(tmp_path, TICKS, LOCAL, "--drain_on_sigterm", "--batch_interval_millis=500")
    program.wait_for(tmp_path / "ticked")
    program.send(signal.SIGTERM)
    program.wait_for(tmp_path / "asked")  # two signals at once may become one
    if is_blocked:
        program.send(signal.SIGTERM)
    ended = program.end(60)
    if is_blocked:
        assert ended.code == 128 + signal.SIGTERM
    else:
        assert (ended.code, ended.out) == (0, "DRAINED\n")
    assert (tmp_path / "summed").exists() is not is_blocked
    assert lines_of(ended.err) == []


OWN_SESSION = """
    from pyspark.sql import SparkSession
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    """
SLOWLY = "--batch_interval_millis=5000"  # so that no epoch is too slow
CONTINUES = r"the same command continues after epoch \d+, the last one in --checkpoint_dir="


def ticking(folder: Path, script: str, *flags: str, **environment: str) -> Program:
    """Start a program, and wait until it has committed an epoch."""
    checkpoints = folder / "checkpoints"
    program = Program(
        folder, script, LOCAL, SLOWLY, f"--checkpoint_dir={checkpoints}", *flags, **environment
    )
    assert program.wait_until(lambda: any(checkpoints.rglob("*.manifest")))
    return program


@pytest.mark.rare
def test_sigterm_to_all_processes_ends_the_program_alone(tmp_path: Path) -> None:
    """A JVM that the program has started ends with it, and not before."""
    program = ticking(tmp_path, TICKS)
    program.send_to_group(signal.SIGTERM)
    ended = program.end(60)
    assert (ended.code, ended.out) == (128 + signal.SIGTERM, "")
    lines = lines_of(ended.err)
    assert len(lines) == 1, lines
    assert re.search(f"{CONTINUES}{re.escape(str(tmp_path))}", lines[0])


def test_sigterm_to_all_processes_may_drain(tmp_path: Path) -> None:
    program = ticking(tmp_path, TICKS, "--drain_on_sigterm")
    program.send_to_group(signal.SIGTERM)
    ended = program.end(60)
    assert (ended.code, ended.out) == (0, "DRAINED\n")
    assert (tmp_path / "summed").exists()
    assert lines_of(ended.err) == []


@pytest.mark.rare
@pytest.mark.parametrize("flags", [(), ("--drain_on_sigterm",)], ids=" ".join)
def test_sigterm_that_ends_the_jvm_as_well_says_where_to_continue(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """The program has started it by itself. Nothing can be drained then."""
    script = OWN_SESSION + TICKS
    program = ticking(tmp_path, script, *flags, PYSPARK_PYTHON=sys.executable)
    program.send_to_group(signal.SIGTERM)
    ended = program.end(60)
    assert re.search(CONTINUES, ended.err)
    assert "did not close" not in ended.err
    if flags:
        assert ended.code == 1
        assert re.search(r"Spark was stopped|Spark's JVM has ended", last_words(ended.err))
    else:
        assert ended.code == 128 + signal.SIGTERM
        assert "beam_spark_runner/" not in ended.err  # PySpark may say what has become of its JVM


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGINT, -signal.SIGINT, id="Ctrl-C"),
        pytest.param(signal.SIGTERM, 128 + signal.SIGTERM, id="SIGTERM", marks=pytest.mark.rare),
    ],
)
def test_a_signal_while_the_jvm_starts_leaves_nothing_behind(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    program = Program(tmp_path, ENDLESS, LOCAL)
    program.wait_for_temporary("tmp*")  # of pyspark: there the JVM will write its port
    program.send(number)
    assert program.end(60).code == code


@pytest.mark.rare
def test_ctrl_c_in_a_call_of_the_jvm_is_one_line_and_leaves_no_socket(tmp_path: Path) -> None:
    """Spark is about to be ready. Py4J logs that its call was interrupted."""
    script = """
        from pyspark.sql import SparkSession

        def waits(session, context, *_, **__):
            print(context._accumulatorServer.server_address, flush=True)
            context._jvm.java.lang.Thread.sleep(3_600_000)

        SparkSession.__init__ = waits
        with beam.Pipeline(argv=OPTIONS) as p:
            p | beam.Create([1])
        """
    program = Program(tmp_path, script, LOCAL)
    socket = Path(program.read_line().strip())
    assert socket.exists()
    program.send(signal.SIGINT)
    ended = program.end(60)
    assert (ended.code, lines_of(ended.err)) == (-signal.SIGINT, ["KeyboardInterrupt"])
    assert not socket.exists()


@pytest.mark.parametrize(
    ("flags", "waits"),
    [
        pytest.param([], True, id="embedded"),
        pytest.param(["--environment_type=LOOPBACK"], True, id="LOOPBACK", marks=pytest.mark.rare),
        pytest.param([], False, id="it does not wait", marks=pytest.mark.rare),
    ],
)
def test_a_word_count_prints_what_it_prints_and_no_more(
    tmp_path: Path, flags: list[str], waits: bool
) -> None:
    (tmp_path / "words").write_text("a b a\nb a\n")
    script = f"""
        p = beam.Pipeline(argv=OPTIONS)
        (p | beam.io.ReadFromText("words") | beam.FlatMap(str.split)
           | beam.combiners.Count.PerElement() | beam.MapTuple("{{}} {{}}".format)
           | beam.io.WriteToText("counts"))
        result = p.run()
        if {waits}:
            print(result.wait_until_finish())
        """
    ended = run(tmp_path, script, *flags)
    printed = "DONE\n" if waits else ""
    assert (ended.code, ended.out, lines_of(ended.err)) == (0, printed, [])
    files = [file.read_text() for file in tmp_path.glob("counts-*")]
    assert sorted("".join(files).splitlines()) == ["a 3", "b 2"]


@pytest.mark.rare
def test_what_a_pipeline_sets_is_not_set_for_later_sessions(tmp_path: Path) -> None:
    """Spark takes the settings of whatever starts its JVM for defaults of all sessions in it."""
    script = """
        import os
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_SUBMIT_ARGS"] = "--conf spark.ui.showConsoleProgress=true pyspark-shell"
        with beam.Pipeline(argv=OPTIONS) as p:
            p | beam.Create([1])
        conf = SparkSession.builder.master("local[1]").getOrCreate().sparkContext.getConf()
        print(sorted(key for key, _ in conf.getAll() if "python" in key or "shuffle" in key))
        print(conf.get("spark.some.setting"), conf.get("spark.ui.showConsoleProgress"))
        """
    ended = run(tmp_path, script, LOCAL, "--spark_conf=spark.some.setting=mine")
    assert (ended.code, ended.out) == (0, "[]\nmine true\n")


@pytest.mark.parametrize(
    "last", ["", pytest.param("os.kill(os.getpid(), signal.SIGKILL)", marks=pytest.mark.rare)]
)
def test_what_others_might_read_or_find(tmp_path: Path, last: str) -> None:
    """Folders for rows, which all users can read, are in one that they cannot enter.

    And the socket of accumulators, which PySpark leaves in a folder that the user's programs share,
    does not outlive the program.
    """
    script = """
        from pyspark import SparkContext

        def look(_):
            from pathlib import Path
            folder = Path(os.environ["SPARK_LOCAL_DIRS"].split(",")[0])
            return f"{folder.name.split('-')[0]} {folder.parent.stat().st_mode & 0o777:o}"

        with beam.Pipeline(argv=OPTIONS) as p:
            p | beam.Create([1]) | beam.Map(look) | beam.Map(print)
        print(SparkContext._active_spark_context._accumulatorServer.server_address, flush=True)
        """
    ended = run(tmp_path, textwrap.dedent(script) + last, LOCAL)
    assert ended.code == (-signal.SIGKILL if last else 0), ended.err
    socket = Path(ended.out.strip())
    assert socket.suffix == ".sock", ended.err
    assert not socket.exists()
    assert "blockmgr 700" in lines_of(ended.err)  # where workers print
