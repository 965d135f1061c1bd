"""Applications that are killed, and programs that fail: what users read, and what runs again."""

from pathlib import Path

import pytest

from integration.job_server import job_server
from integration.yarn.applications import Submitter
from integration.yarn.nodes import Yarn
from integration.yarn.patience import wait_until
from integration.yarn.processes import EXECUTOR, jvms

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

PROGRAM = "pipelines_in_turn.py"


def test_an_application_is_killed_by_a_command(submitter: Submitter, yarn: Yarn) -> None:
    turns = yarn.place("turns-of-a-killed-application")
    running = submitter.python(PROGRAM, f"--turns={turns}")
    (turns / "0").write_text("3000")
    application = running.application()
    wait_until(lambda: bool(yarn.python_workers(application)), "a Python worker")
    yarn.kill(application)
    done = running.done()
    assert done.status == 1
    assert "Spark was stopped" in done.output
    assert yarn.application(application)["finalStatus"] == "KILLED"


def test_programs_that_fail_are_started_as_often_as_yarn_may(
    submitter: Submitter, yarn: Yarn
) -> None:
    """In cluster mode twice by default; in client mode YARN knows nothing of the exit status.

    Drivers that fail leave no sockets.
    """
    once = {"spark.yarn.maxAppAttempts": "1"}
    starts = {name: yarn.place(f"starts-{name}") for name in ("client", "once", "twice")}
    flags = {name: f"--starts={folder}" for name, folder in starts.items()}
    program = "fails_on_yarn.py"
    running = [
        submitter.python(program, flags["client"], "--job_name=client"),
        submitter.spark_submit("cluster", program, flags["once"], conf=once),
        submitter.spark_submit("cluster", program, flags["twice"]),
    ]
    assert [each.done().status for each in running] == [1, 1, 1]
    assert {name: len(list(folder.iterdir())) for name, folder in starts.items()} == {
        "client": 1,
        "once": 1,
        "twice": 2,
    }
    ended = {each["name"]: each["finalStatus"] for each in yarn.applications()[-3:]}
    assert ended == {"client": "SUCCEEDED", program: "FAILED"}
    assert "Divide" in running[0].output
    assert list(yarn.sockets.iterdir()) == []


def test_a_job_server_outlives_its_application(
    submitter: Submitter, yarn: Yarn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next job starts another one."""
    for name, value in yarn.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    flags = [f"--spark_conf={key}={value}" for key, value in submitter.conf.items()]
    turns, log = yarn.place("turns-of-a-server"), tmp_path / "server.log"
    with job_server("--spark_master_url=yarn", *flags, log=log) as address:
        client = [f"--job_endpoint={address}", "--environment_type=PROCESS"]
        running = submitter.client(PROGRAM, f"--turns={turns}", *client)
        (turns / "0").write_text("3000")
        application = running.application()
        wait_until(lambda: bool(jvms(EXECUTOR, application)), "an executor")
        wait_until(lambda: bool(yarn.python_workers(application)), "a Python worker")
        yarn.kill(application)
        assert running.done().status == 1
        again = submitter.client("word_count_on_yarn.py", *client).done()
        assert again.status == 0, again.output[-8000:] + log.read_text()[-8000:]
        (other,) = again.applications
        assert other != application
    wait_until(lambda: yarn.application(other)["state"] == "FINISHED", "the server's application")
