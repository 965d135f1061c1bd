"""What a JVM writes to stderr: it is passed on, until the program ends."""

import os
import subprocess
import sys
import textwrap

import pytest

from beam_spark_runner.spark.session.jvm_output import JvmErrors, UsualLine


def test_what_the_jvm_writes_is_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    errors = JvmErrors()
    program = "import sys; sys.stderr.write('x' * 200_000 + 'end')"
    process = subprocess.Popen([sys.executable, "-c", program], stderr=errors.writing)
    errors.pass_on()
    assert process.wait(60) == 0
    errors.wait_for_end()
    assert capfd.readouterr().err == "x" * 200_000 + "end"


USUAL = b"WARNING: Using incubator modules: jdk.incubator.vector\n"


@pytest.mark.parametrize(
    ("written", "passed"),
    [
        (USUAL + b"next\n", b"next\n"),
        (b"first\n" + USUAL + USUAL + b"last", b"first\nlast"),
        (b"not " + USUAL, b"not " + USUAL),
        (b"WARNING: Using another\n", b"WARNING: Using another\n"),
        (b"\n\n" + USUAL + b"\n", b"\n\n\n"),
        (USUAL[:-1], USUAL[:-1]),
        (b"WARN", b"WARN"),
        (b"", b""),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 7, 55, 56, 1000])
def test_javas_line_about_sparks_module_is_cut(written: bytes, passed: bytes, size: int) -> None:
    usual = UsualLine()
    blocks = [written[start : start + size] for start in range(0, len(written), size)]
    assert b"".join(map(usual.cut_from, blocks)) + usual.withheld == passed


def test_other_lines_are_not_held_back() -> None:
    assert UsualLine().cut_from(b"Password: ") == b"Password: "


def test_nothing_is_left_of_a_process_that_was_not_started() -> None:
    before = len(os.listdir("/dev/fd"))
    JvmErrors().close_unused()
    assert len(os.listdir("/dev/fd")) == before


def test_what_outlives_the_program_writes_nothing() -> None:
    """Nor does a forked child keep the pipe open."""
    program = """
        import os, subprocess, sys, time
        from beam_spark_runner.spark.session.jvm_output import JvmErrors, UsualLine
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
