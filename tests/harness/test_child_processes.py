"""Processes of SDK harnesses: their output, their end, and who ends with them."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from beam_spark_runner.harness.environments.process import HarnessProcess
from tests.harness.processes import is_alive, wait_for

pytestmark = [pytest.mark.grpc, pytest.mark.timeout(120)]


ROOT = Path(__file__).parents[2]


def python(text: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(text)]


@pytest.fixture
def ended() -> threading.Event:
    return threading.Event()


def test_its_status_and_last_words_are_known(ended: threading.Event) -> None:
    script = """
        import sys
        for number in range(40):
            print("line", number, file=sys.stderr if number % 2 else sys.stdout)
        sys.exit(3)
    """
    process = HarnessProcess(python(script), os.environ, ended.set)
    assert ended.wait(20)
    assert process.exit_code == 3
    lines = process.tail.splitlines()
    assert sorted(lines) == sorted(f"line {number}" for number in range(40))


def test_of_much_output_the_last_lines_are_kept(ended: threading.Event) -> None:
    script = """
        for number in range(100_000):
            print("line", number)
        print("x" * 10_000_000)
    """
    process = HarnessProcess(python(script), os.environ, ended.set)
    assert ended.wait(20)
    assert len(process.tail) <= 50 * 2_000


def test_a_signal_is_told_as_a_shell_tells_it(ended: threading.Event) -> None:
    script = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    process = HarnessProcess(python(script), os.environ, ended.set)
    assert ended.wait(20)
    assert process.exit_code == 128 + signal.SIGSEGV


def test_options_are_no_last_words(ended: threading.Event) -> None:
    script = """
        import logging
        logging.basicConfig()
        long = "x" * 10_000
        logging.warning("Pipeline_options: %s", {"password": "secret", "a": long, "b": "secret"})
        logging.warning("Discarding unparseable args: %s", ["--password=secret", long, "secret"])
        logging.warning("Discarding flag %s, single dash flags are not allowed.", "-psecret")
        logging.warning('pipeline_options:{fields:{key:"password" value:{string_value:"secret"}}}')
        logging.warning("Parsed options in boot entrypoint: %s", {"password": "secret"})
        logging.warning("something else")
    """
    process = HarnessProcess(python(script), os.environ, ended.set)
    assert ended.wait(20)
    assert process.tail == "WARNING:root:something else"


def test_of_a_crash_the_thread_that_did_it_is_kept(ended: threading.Event) -> None:
    script = """
        import ctypes, threading, time
        for _ in range(40):
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        def fall():
            ctypes.string_at(0)
        print("before", flush=True)
        fall()
    """
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    process = HarnessProcess(python(script), environment, ended.set)
    assert ended.wait(20)
    assert "before" in process.tail
    assert "Fatal Python error: Segmentation fault" in process.tail
    assert re.search(r"Current thread .*\n  File .* in string_at\n.* in fall\n", process.tail)
    assert "\nThread 0x" not in process.tail


def test_a_command_that_does_not_exist(ended: threading.Event) -> None:
    process = HarnessProcess(["/no/such/program"], os.environ, ended.set)
    assert ended.wait(20)
    assert process.exit_code == 127
    assert process.tail == "/no/such/program: No such file or directory"


STUBBORN = """
    import os, signal, subprocess, sys, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    open(sys.argv[1], "w").write(f"{os.getpid()} {child.pid}")
    time.sleep(600)
"""


def pids_in(file: Path) -> list[int]:
    wait_for(lambda: file.exists() and len(file.read_text().split()) == 2)
    return [int(pid) for pid in file.read_text().split()]


def test_stop_ends_what_it_has_started_and_what_ignores_signals(
    ended: threading.Event, tmp_path: Path
) -> None:
    file = tmp_path / "pids"
    process = HarnessProcess([*python(STUBBORN), str(file)], os.environ, ended.set)
    pids = pids_in(file)
    assert all(map(is_alive, pids))
    process.stop()
    assert ended.wait(20)
    wait_for(lambda: not any(map(is_alive, pids)))


def test_another_command_runs_last_whatever_ended_the_first_one(
    ended: threading.Event, tmp_path: Path
) -> None:
    file, last = tmp_path / "pids", tmp_path / "last"
    look = 'kill -0 $(cut -d " " -f 1 "$1") 2> "$0.error"; echo $? > "$0"'
    process = HarnessProcess(
        [*python(STUBBORN), str(file)],
        os.environ,
        ended.set,
        last=["sh", "-c", look, str(last), str(file)],
    )
    pids = pids_in(file)
    process.stop()
    assert ended.wait(20)
    assert last.read_text() == "1\n"  # the first one has ended by then
    wait_for(lambda: not any(map(is_alive, pids)))


PARENT = """
    import os, sys, time
    sys.path.insert(0, sys.argv[1])
    from beam_spark_runner.harness.environments.process import HarnessProcess
    process = HarnessProcess(sys.argv[2:], os.environ, lambda: None)
    print(process.pid, flush=True)
    time.sleep(600)
"""


def test_the_kill_of_its_parent_ends_it(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    command = [*python(PARENT), str(ROOT), *python(STUBBORN), str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        guard = int(parent.stdout.readline())
        pids = [guard, *pids_in(file)]
        parent.kill()
    wait_for(lambda: not any(map(is_alive, pids)))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux does it")
def test_the_kill_of_its_guard_ends_it(ended: threading.Event, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    process = HarnessProcess([*python(STUBBORN), str(file)], os.environ, ended.set)
    harness, what_it_has_started = pids_in(file)
    os.kill(process.pid, signal.SIGKILL)
    assert ended.wait(20)
    wait_for(lambda: not is_alive(harness))
    os.kill(what_it_has_started, signal.SIGKILL)  # nobody is left who knows of it
