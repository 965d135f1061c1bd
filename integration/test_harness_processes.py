"""SDK harnesses of whole programs: none is left, however a program or a part of it ends."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.cli.programs import Program, run

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.grpc]

PROCESS = ("--environment_type=PROCESS", "--environment_config={}")
SLEEPER = """
def wait(x):
    import os, time
    with open("starting", "w") as file:
        file.write(str(os.getpid()))
    os.rename("starting", "running")
    time.sleep(600)

with beam.Pipeline(argv=[*OPTIONS, "--spark_master_url=local[2]"]) as p:
    p | beam.Create(["a"]) | beam.Map(wait)
"""


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Program]:
    """A program whose user code, in an SDK harness, sleeps."""
    program = Program(tmp_path, SLEEPER, *PROCESS)
    yield program
    program.send(signal.SIGKILL)


def killed(program: Program, who: str) -> None:
    """Kill -9 one of the processes between the program and its user code."""
    program.wait_for(program.folder / "running")
    harness = psutil.Process(int((program.folder / "running").read_text()))
    chain = [harness, *harness.parents()]
    names = ["harness", "guard", "worker", "daemon", "JVM", "program"]
    assert "sdk_worker_main" in " ".join(chain[0].cmdline())
    assert "guard.py" in " ".join(chain[1].cmdline())
    assert Path(chain[4].exe()).name == "java"
    os.kill(chain[names.index(who)].pid, signal.SIGKILL)


@pytest.mark.parametrize("who", ["harness", "guard", "worker", "JVM", "program"])
def test_a_kill_leaves_no_process(sleeper: Program, who: str) -> None:
    killed(sleeper, who)
    ended = sleeper.end(jvm_was_killed=who == "JVM")
    assert ended.code != 0
    if who in ("harness", "guard"):
        assert "the SDK harness ended with" in ended.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_no_process(sleeper: Program, number: signal.Signals) -> None:
    sleeper.wait_for(sleeper.folder / "running")
    sleeper.send(number)
    assert sleeper.end().code != 0


def test_success_and_failure_leave_no_process(tmp_path: Path) -> None:
    script = """
    with beam.Pipeline(argv=[*OPTIONS, "--spark_master_url=local[2]"]) as p:
        p | beam.Create([2, 1, 0]) | beam.Map(lambda n: print("seen", 1 // n))
    """
    ended = run(tmp_path, script, *PROCESS)
    assert ended.code == 1
    assert "ZeroDivisionError" in ended.err


def test_a_task_whose_harness_was_killed_is_run_again(tmp_path: Path) -> None:
    script = """
    def die_once(x):
        import os, signal
        if x == 7 and not os.path.exists("died"):
            open("died", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    with beam.Pipeline(argv=[*OPTIONS, "--spark_master_url=local[2,3]"]) as p:
        numbers = p | beam.Create(range(20)) | beam.Reshuffle() | beam.Map(die_once)
        numbers | beam.CombineGlobally(sum) | beam.Map(lambda n: print("sum", n))
    """
    ended = run(tmp_path, script, *PROCESS)
    assert ended.code == 0, ended.err
    assert (tmp_path / "died").exists()
    assert "sum 190" in ended.err  # where Spark sends what its workers print
