"""The ways to start a pipeline on YARN, and what is left when it has ended."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from integration.yarn.applications import Done, Submitter
from integration.yarn.nodes import Yarn

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

PROGRAM = "word_count_on_yarn.py"
MODES = ("python", "client", "cluster")
USERS_OWN = {
    "spark.shuffle.reduceLocality.enabled": "true",
    "spark.python.worker.faulthandler.enabled": "false",
    "spark.executor.instances": "1",
}


def succeeded(done: Done, yarn: Yarn) -> str:
    """Check that a program has ended well, and its only application with it; return its id."""
    assert done.status == 0, done.output[-8000:]
    (application,) = done.applications
    assert yarn.application(application)["finalStatus"] == "SUCCEEDED"
    return application


@pytest.fixture(scope="module")
def ended(submitter: Submitter, yarn: Yarn) -> Mapping[str, tuple[Done, str]]:
    """Run the program in each mode, all at the same time; return their ends and logs."""
    names = ["--name", "of spark-submit"]
    running = {
        "python": submitter.python(PROGRAM, "--job_name=by-python", conf=USERS_OWN),
        "client": submitter.spark_submit("client", PROGRAM, conf=USERS_OWN, options=names),
        "cluster": submitter.spark_submit("cluster", PROGRAM, conf=USERS_OWN),
    }
    found = {}
    for mode, program in running.items():
        done = program.done()
        assert done.status == 0, done.output[-8000:]
        mine = [each for each in yarn.applications() if name_in(mode) == each["name"]]
        (application,) = (str(each["id"]) for each in mine)
        found[mode] = (Done(done.status, done.output, [application]), yarn.logs(application))
    return found


def name_in(mode: str) -> str:
    """Return the name that an application has in a mode."""
    return {"python": "by-python", "client": "of spark-submit", "cluster": PROGRAM}[mode]


@pytest.mark.parametrize("mode", MODES)
def test_pipelines_succeed_and_leave_nothing(
    ended: Mapping[str, tuple[Done, str]], yarn: Yarn, mode: str
) -> None:
    done, logs = ended[mode]
    application = succeeded(done, yarn)
    assert yarn.attempts(application) == 1
    driver = logs if mode == "cluster" else done.output
    assert "the pipeline is done" in driver
    assert ("HOME is /home/" in driver) == (mode == "cluster")
    assert not [file for file in yarn.files("/user") if application in file]
    assert list(yarn.sockets.iterdir()) == []


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_settings_of_the_user_are_kept(
    ended: Mapping[str, tuple[Done, str]], yarn: Yarn, mode: str
) -> None:
    """The folder of sockets is such a setting, too: ``Submitter`` names one."""
    done, logs = ended[mode]
    driver = logs if mode == "cluster" else done.output
    assert "spark.shuffle.reduceLocality.enabled is true" in driver
    assert "spark.python.worker.faulthandler.enabled is false" in driver
    assert f"spark.python.unix.domain.socket.dir is {yarn.sockets}" in driver


@pytest.mark.parametrize("mode", MODES)
def test_where_lines_of_steps_are(ended: Mapping[str, tuple[Done, str]], mode: str) -> None:
    """Which is where docs/yarn.md says that it is: Spark has stdout of workers in stderr."""
    done, logs = ended[mode]
    before, printed, _ = logs.partition("printed by a step")
    assert printed
    assert before.rpartition("LogType:")[2].partition("\n")[0] == "stderr"
    assert "logged by a step" in (logs if mode == "cluster" else done.output)


def test_files_on_hdfs(submitter: Submitter, yarn: Yarn, tmp_path: Path) -> None:
    """By Beam's own transforms, from executors and from a driver in a container."""
    text = tmp_path / "in.txt"
    text.write_text("to be or not to be\n" * 50)
    yarn.upload(text, "in.txt")
    done = submitter.spark_submit(
        "cluster",
        "words_on_hdfs.py",
        *(f"--input={yarn.folder('in.txt')}", f"--output={yarn.folder('out')}"),
        *(f"--temp_location={yarn.folder('temp')}", *yarn.checkpoint_flags, "--hdfs_full_urls"),
    ).done()
    succeeded(done, yarn)
    counts = yarn.read("/beam/out-*").split("\n")
    assert sorted(filter(None, counts)) == ["be 100", "not 50", "or 50", "to 100"]
    assert yarn.files("/beam/temp") == []
