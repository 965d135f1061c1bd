"""What a user reads when a program cannot run: one error, its cause first, and soon."""

import re
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.programs import last_words, lines_of, run

pytestmark = pytest.mark.slow

LOCAL = "--spark_master_url=local[2]"
ONE_STEP = """
    with beam.Pipeline(argv=OPTIONS) as p:
        p | beam.Create([1])
    """


def closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        pytest.param(
            [f"--spark_master_url=spark://127.0.0.1:{closed_port()}"],
            "no master answers at spark://127.0.0.1:",
            id="no cluster",
        ),
        pytest.param(
            [f"--spark_master_url=sc://127.0.0.1:{closed_port()}"],
            "no Spark Connect server answers at sc://127.0.0.1:",
            id="no Connect server",
        ),
        pytest.param(
            ["--spark_master_url=spork://a:1"],
            "--spark_master_url: 'spork://a:1' is not a Spark master",
            id="no master",
        ),
        pytest.param(
            ["--environment_type=NOWHERE"], "--environment_type: NOWHERE is not", id="environment"
        ),
    ],
)
def test_options_and_addresses(tmp_path: Path, flags: list[str], message: str) -> None:
    ended = run(tmp_path, ONE_STEP, *flags)
    assert (ended.code, ended.out) == (1, "")
    assert message in last_words(ended.err)
    assert ended.seconds < 60


def test_no_java(tmp_path: Path) -> None:
    ended = run(tmp_path, ONE_STEP, LOCAL, PATH="/nowhere", JAVA_HOME="")
    assert ended.code == 1
    assert last_words(ended.err).startswith("Java was not found: no java is on the PATH.")


def test_old_java(tmp_path: Path) -> None:
    import pyspark

    version = "11.0.2" if int(pyspark.__version__[0]) >= 4 else "1.7.0"
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    ended = run(tmp_path, ONE_STEP, LOCAL, JAVA_HOME=str(tmp_path))
    assert ended.code == 1
    assert f"{java} is Java {'11' if version[:2] == '11' else '7'}." in last_words(ended.err)


@pytest.mark.spark
def test_flags_that_the_jvm_refuses(tmp_path: Path) -> None:
    ended = run(tmp_path, ONE_STEP, LOCAL, "--spark_conf=spark.driver.memory=much")
    assert ended.code == 1
    assert last_words(ended.err).startswith("Spark did not start (local[2])")


@pytest.mark.spark
@pytest.mark.rare
def test_a_step_that_raises(tmp_path: Path) -> None:
    script = """
        def bad(element):
            raise ValueError("own words")

        with beam.Pipeline(argv=OPTIONS) as p:
            p | beam.Create(range(10)) | beam.Reshuffle() | "bad step" >> beam.Map(bad)
        """
    ended = run(tmp_path, script, LOCAL)
    assert ended.code == 1
    assert ended.err.count("Traceback") == 2  # the program's, and the step's
    *message, element = last_words(ended.err).splitlines()
    assert message == [
        "bad step: ValueError: own words",
        "",
        "Traceback (most recent call last):",
        f'  File "{tmp_path}/program.py", line 8, in bad',
        '    raise ValueError("own words")',
        "ValueError: own words [while running 'bad step']",
    ]
    assert re.fullmatch(r"Element: \d", element)


@pytest.mark.rare
@pytest.mark.spark
def test_steps_that_end_their_worker_or_cannot_write(tmp_path: Path) -> None:
    """One Spark for all of them: it survives each."""
    script = """
        import ctypes, signal, traceback
        from beam_spark_runner.options.config import RunnerConfig
        from beam_spark_runner.spark.session.open_session import open_session

        def exits(element):
            os._exit(3)

        def is_killed(element):
            os.kill(os.getpid(), signal.SIGKILL)

        def crashes(element):
            ctypes.string_at(0)

        def ends_its_worker(p, bad):
            p | beam.Create(range(10)) | "innocent" >> beam.Map(str) | beam.Reshuffle() | "bad step" >> beam.Map(bad)

        def cannot_write(p):
            p | beam.Create(["a"]) | "write" >> beam.io.WriteToText("/proc/nope/out")

        with open_session(RunnerConfig(spark_master_url="local[2]")):
            for build, *arguments in [
                (ends_its_worker, exits), (ends_its_worker, is_killed), (ends_its_worker, crashes), (cannot_write,)
            ]:
                try:
                    with beam.Pipeline(argv=OPTIONS) as p:
                        build(p, *arguments)
                except Exception:
                    traceback.print_exc()
                    print("==", file=sys.stderr)
        """  # noqa: E501
    ended = run(tmp_path, script, LOCAL)
    assert ended.code == 0, ended.err
    *ends, wrote, rest = ended.err.split("==\n")
    assert lines_of(rest) == []
    for end, words in zip(
        ends,
        [
            "ended the Python worker (os._exit, a crash, or",
            "out-of-memory killer)",
            "line 18 in crashes",
        ],
        strict=True,
    ):
        assert last_words(end).startswith("Spark failed in bad step: ")
        assert words in last_words(end)
        assert "innocent" not in end.partition("SparkJobError")[2]
    message = last_words(wrote)
    assert message.startswith("write/Write/WriteImpl/InitializeWrite: OSError: ")
    assert "'/proc/nope'" in message.splitlines()[0]
    assert not any("\tat " in line or "ERROR" in line for line in lines_of(ended.err))


def test_a_missing_input_file(tmp_path: Path) -> None:
    script = """
        with beam.Pipeline(argv=OPTIONS) as p:
            p | beam.io.ReadFromText("/nope/nothing.txt")
        """
    ended = run(tmp_path, script, LOCAL)
    assert ended.code == 1
    assert lines_of(ended.err)[-1].endswith(
        "No files found based on the file pattern /nope/nothing.txt"
    )


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for 5 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=5m", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"mounting a file system is not possible here: {error}")
    yield folder
    for _ in range(20):  # a JVM may still have a file open
        if (
            subprocess.run(["umount", str(folder)], check=False, capture_output=True).returncode
            == 0
        ):
            return
        time.sleep(0.5)


@pytest.mark.rare
@pytest.mark.spark
def test_a_full_disk(tmp_path: Path, tiny_disk: Path) -> None:
    script = """
        with beam.Pipeline(argv=OPTIONS) as p:
            p | beam.Create(range(30)) | beam.Map(lambda n: (n, os.urandom(1 << 20))) | beam.GroupByKey(
            ) | beam.Map(len)
        """  # noqa: E501
    ended = run(tmp_path, script, LOCAL, f"--spark_conf=spark.local.dir={tiny_disk}")
    assert ended.code == 1
    message = last_words(ended.err)
    assert "a disk is full: Spark's local directory, or the temp folder" in message
    assert "\n" not in message.strip()
    assert not any("\tat " in line for line in lines_of(ended.err))
