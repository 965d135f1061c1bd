"""The containers of ``docker/``, as ``docs/compose.md`` shows them, and when some are killed."""

import functools
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.compose import ROOT, Composed, compose_up
from integration.programs.waits_for_a_file import ELEMENTS, KEYS
from integration.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(5_400)]

SERVER = "--job_endpoint=localhost:8099"
PROCESS = ("--environment_type=PROCESS", "--environment_config={}")
CLIENTS = {
    "PortableRunner": ("--runner=PortableRunner", SERVER, *PROCESS),
    "SparkPortableRunner": ("--runner=SparkPortableRunner", SERVER),
}
ENDS_WITHIN_S = 900.0  # on a machine that has a lot to do
NOTICES_WITHIN_S = 120.0
EXECUTOR = "CoarseGrainedExecutorBackend"


@pytest.fixture(scope="module")
def composed() -> Iterator[Composed]:
    with compose_up({"PWD": str(ROOT)}) as running:
        yield running


@pytest.fixture(scope="module")
def go_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where ``go install`` puts its programs."""
    return tmp_path_factory.mktemp("go")


def commands() -> list[str]:
    """Return the three commands of the documentation."""
    text = (ROOT / "docs" / "compose.md").read_text()
    block = re.search(r"```console\n(.*?)```", text, re.DOTALL)
    assert block is not None
    return re.sub(r"\\\n *", "", block[1]).removeprefix("$ ").rstrip().split("\n$ ")


def in_shell(command: str, go_path: Path) -> "subprocess.Popen[str]":
    caches = subprocess.run(["go", "env", "GOMODCACHE", "GOCACHE"], capture_output=True, text=True)
    modules, cache = caches.stdout.split()
    variables = {"GOPATH": str(go_path), "GOMODCACHE": modules, "GOCACHE": cache}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.Popen(
        ["bash", "-c", command],
        cwd=ROOT,
        env={**os.environ, **variables, "PATH": path, "PWD": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def waiting_job(folder: str, *options: str) -> "subprocess.Popen[str]":
    program = [sys.executable, "-m", "integration.programs.waits_for_a_file", folder]
    return subprocess.Popen(
        [*program, *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def words() -> dict[str, int]:
    """Count as Beam's examples do."""
    return Counter(re.findall(r"[a-zA-Z]+(?:'[a-z])?", (ROOT / "README.md").read_text()))


def output(composed: Composed, prefix: str) -> dict[str, int]:
    lines = composed.run_in("job-server", "sh", "-c", f"cat {prefix}*").splitlines()
    return {key: int(count) for key, _, count in (line.partition(": ") for line in lines)}


def processes_of_jobs(composed: Composed) -> list[str]:
    workers = [composed.processes(f"spark-worker-{number}") for number in (1, 2)]
    lines = [line for worker in workers for line in worker]
    return [line for line in lines if EXECUTOR in line or "sdk_worker" in line or "pyspark" in line]


def has_started_again(composed: Composed, service: str) -> bool:
    found = composed.inspect()[service]
    health = found["State"]["Health"]["Status"]
    return found["RestartCount"] > 0 and bool(health == "healthy")


def begun(composed: Composed, folder: str) -> int:
    return composed.run_in("job-server", "ls", folder).count("begun-")


def test_three_commands_from_nothing_to_two_word_counts(composed: Composed, go_path: Path) -> None:
    up, python, go = commands()
    assert up == "docker compose -f docker/compose.yaml up --build --detach --wait"
    for command, prefix in ((python, "/shared/from-python"), (go, "/shared/from-go")):
        program = in_shell(command, go_path)
        said, _ = program.communicate(timeout=ENDS_WITHIN_S)
        assert program.returncode == 0, said
        found = output(composed, prefix)
        assert found, said
        assert found["the"] == words()["the"]
        if prefix == "/shared/from-go":
            assert found == words()


def test_nothing_runs_as_root_and_only_this_machine_reaches_the_ports(composed: Composed) -> None:
    for service, each in composed.inspect().items():
        user = each["Config"]["User"]
        assert user in ("beam", "1000:1000"), service
        for line in composed.processes(service):
            assert line.split()[1] != "0", line
        published = [
            one for ports in each["NetworkSettings"]["Ports"].values() for one in ports or ()
        ]
        assert all(one["HostIp"] == "127.0.0.1" for one in published), published
    assert composed.run_in("job-server", "id", "-u").strip() == "1000"


def test_a_worker_is_killed_in_the_middle_of_a_job(composed: Composed) -> None:
    folder = "/shared/worker"
    composed.run_in("job-server", "mkdir", folder)
    job = waiting_job(folder, *CLIENTS["SparkPortableRunner"])
    wait_until(lambda: begun(composed, folder) == 2, "both workers have begun")
    composed.kill("spark-worker-2")
    assert not composed.inspect()["spark-worker-2"]["State"]["Running"]
    composed.run_in("job-server", "touch", f"{folder}/go-on")
    said, _ = job.communicate(timeout=ENDS_WITHIN_S)
    assert job.returncode == 0, said
    assert output(composed, f"{folder}/counts") == {
        str(key): ELEMENTS // KEYS for key in range(KEYS)
    }


def test_a_worker_that_starts_again_serves_go(composed: Composed, go_path: Path) -> None:
    composed.up()
    assert len([each for each in composed.master()["workers"] if each["state"] == "ALIVE"]) == 2
    composed.compose("stop", "spark-worker-1")  # so that the second one must do it
    program = in_shell(commands()[2].replace("from-go", "from-go-again"), go_path)
    said, _ = program.communicate(timeout=ENDS_WITHIN_S)
    composed.up()
    assert program.returncode == 0, said
    assert output(composed, "/shared/from-go-again") == words()


def test_the_job_server_is_killed_while_jobs_run(composed: Composed, go_path: Path) -> None:
    """The jobs of Python take all slots, so that the one of Go is under way, too."""
    jobs = {}
    for number, (name, options) in enumerate(CLIENTS.items()):
        folder = f"/shared/server-{number}"
        composed.run_in("job-server", "mkdir", folder)
        jobs[name] = waiting_job(folder, *options)
    wait_until(
        lambda: begun(composed, "/shared/server-0") + begun(composed, "/shared/server-1") > 0,
        "a job has begun",
    )
    jobs["Go"] = in_shell(commands()[2].replace("from-go", "never"), go_path)
    go_output = jobs["Go"].stdout
    assert go_output is not None
    for line in go_output:
        if "state: RUNNING" in line:
            break
    composed.kill("job-server")
    said = {name: job.communicate(timeout=NOTICES_WITHIN_S)[0] for name, job in jobs.items()}
    for name, job in jobs.items():
        assert job.returncode not in (0, None), said[name]
    assert "UNAVAILABLE" in said["PortableRunner"]
    assert "Unavailable" in said["Go"]
    assert "JobServerLostError" in said["SparkPortableRunner"], said["SparkPortableRunner"]
    wait_until(lambda: not processes_of_jobs(composed), "nothing of the jobs runs")


def test_what_crashes_starts_again_and_serves(composed: Composed, go_path: Path) -> None:
    composed.up()
    programs = {"spark-worker-2": "java", "job-server": "bin/beam-spark-job-server"}
    for service, name in programs.items():
        composed.run_in(service, "pkill", "-KILL", "-f", name)
        wait_until(functools.partial(has_started_again, composed, service), f"{service} serves")
    program = in_shell(commands()[1].replace("from-python", "from-python-again"), go_path)
    said, _ = program.communicate(timeout=ENDS_WITHIN_S)
    assert program.returncode == 0, said
    assert output(composed, "/shared/from-python-again")["the"] == words()["the"]
