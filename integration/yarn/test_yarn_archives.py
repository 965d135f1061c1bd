"""Executors and drivers whose Python comes from archives, with and without Beam."""

import re
from pathlib import Path

import pytest

from integration.yarn.applications import Submitter
from integration.yarn.nodes import Yarn
from integration.yarn.patience import wait_until
from integration.yarn.processes import EXECUTOR, jvms, kill
from integration.yarn.test_yarn_modes import succeeded

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

PROGRAM = "word_count_on_yarn.py"


def bare(archives: dict[str, str]) -> dict[str, str]:
    """Return the settings by which executors have pyarrow, and no Beam."""
    return {
        "spark.yarn.dist.archives": f"{archives['bare']}#bare",
        "spark.pyspark.python": "./bare/bin/python",
    }


def test_a_driver_in_a_container_sends_its_packages(
    submitter: Submitter, yarn: Yarn, archives: dict[str, str]
) -> None:
    """Its home is not there, so that what it packs is in the folder of the application."""
    conf = bare(archives)
    conf["spark.yarn.dist.archives"] += f",{archives['all']}#env"
    conf["spark.pyspark.driver.python"] = "./env/bin/python"
    done = submitter.spark_submit("cluster", PROGRAM, conf=conf).done()
    application = succeeded(done, yarn)
    logs = yarn.logs(application)
    assert re.search(rf"the packages are packed in \S*/{application}\b", logs), logs[-8000:]


def test_executors_that_join_later_find_their_python(
    submitter: Submitter, yarn: Yarn, archives: dict[str, str]
) -> None:
    """All executors are replaced by ones in other containers."""
    turns = yarn.place("turns-of-archives")
    flags = (f"--turns={turns}", "--executor_environment=archive")
    running = submitter.python("pipelines_in_turn.py", *flags, conf=bare(archives))
    (turns / "0").write_text("10")
    application = running.application()
    wait_until(lambda: running.says("turn 0 is done"), "the first pipeline")
    first = jvms(EXECUTOR, application)
    for pid in first:
        kill(pid)

    def are_replaced() -> bool:
        now = jvms(EXECUTOR, application)
        return len(now) == 2 and not set(now) & set(first)

    wait_until(are_replaced, "new executors")
    (turns / "1").write_text("10")
    (turns / "end").touch()
    done = running.done()
    succeeded(done, yarn)
    assert "turn 1 is done" in done.output


def test_packages_of_a_pipeline(submitter: Submitter, yarn: Yarn, tmp_path: Path) -> None:
    """They are installed in containers, whose user has no home."""
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("inflection==0.5.1\n")
    done = submitter.python("uses_a_package.py", f"--requirements_file={requirements}").done()
    succeeded(done, yarn)
    assert "the plurals are right" in done.output


def test_a_python_that_is_not_there_is_named(
    submitter: Submitter, archives: dict[str, str]
) -> None:
    python = "/nodes/have/no/python"
    conf = {**bare(archives), "spark.pyspark.python": python}
    done = submitter.python(PROGRAM, conf=conf).done()
    assert done.status == 1
    problem = f'executors cannot start Python: Cannot run program "{python}"'
    assert problem in done.output
    # The remedy follows, and no frames of Java's.
    assert "java.base/" not in done.output.partition(problem)[2].partition("Install the same")[0]
