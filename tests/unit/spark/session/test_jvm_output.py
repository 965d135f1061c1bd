"""What a JVM writes to stderr: it is passed on, until the program ends."""

import os
import subprocess
import sys
import textwrap

import pytest

from beam_spark_runner.spark.session.jvm_output import JvmErrors


def test_it_is_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    errors = JvmErrors()
    program = "import sys; sys.stderr.write('x' * 200_000 + 'end')"
    process = subprocess.Popen([sys.executable, "-c", program], stderr=errors.writing)
    errors.pass_on()
    assert process.wait(60) == 0
    errors.settle()
    assert capfd.readouterr().err == "x" * 200_000 + "end"


def test_nothing_is_left_of_a_process_that_was_not_started() -> None:
    before = len(os.listdir("/dev/fd"))
    JvmErrors().drop()
    assert len(os.listdir("/dev/fd")) == before


def test_what_outlives_the_program_writes_nothing() -> None:
    """Nor does a forked child keep the pipe open."""
    program = """
        import os, subprocess, sys, time
        from beam_spark_runner.spark.session.jvm_output import JvmErrors
        errors = JvmErrors()
        late = "import os, sys; sys.stdin.read(); os.write(2, b'late')"
        subprocess.Popen([sys.executable, "-c", late], stdin=subprocess.PIPE, stderr=errors.writing)
        errors.pass_on()
        if os.fork() == 0:
            time.sleep(3600)
        os.kill(os.getpid(), 9)
        """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.wait(60) == -9
    os.killpg(process.pid, 9)  # the child, which holds the pipes of this test
    _, err = process.communicate(timeout=60)
    assert "late" not in err
