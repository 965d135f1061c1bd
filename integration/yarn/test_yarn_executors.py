"""Executors on YARN that are killed, that come when there is work, and go when there is none."""

import pytest

from integration.yarn.applications import Running, Submitter
from integration.yarn.nodes import Yarn
from integration.yarn.patience import wait_until
from integration.yarn.processes import EXECUTOR, jvms, kill
from integration.yarn.test_yarn_modes import succeeded

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

PROGRAM = "pipelines_in_turn.py"
STREAM = "slow_stream.py"
MAX_EXECUTORS = 3
DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": str(MAX_EXECUTORS),
    "spark.dynamicAllocation.initialExecutors": "1",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    # Executors that keep rows, or have written some for others, stay for longer than the others.
    "spark.dynamicAllocation.cachedExecutorIdleTimeout": "2s",
    "spark.dynamicAllocation.shuffleTracking.timeout": "2s",
}


def wait_for_executors(running: Running, count: int, what: str) -> None:
    """Wait until as many executors are up."""
    application = running.application()

    def are_up() -> bool:
        assert running.process.poll() is None, running.output[-8000:]
        return len(jvms(EXECUTOR, application)) == count

    wait_until(are_up, what)


@pytest.mark.parametrize("storage", ["executors", "hdfs"])
def test_an_executor_is_killed(submitter: Submitter, yarn: Yarn, storage: str) -> None:
    """It has rows of the pipeline, or HDFS has them."""
    turns = yarn.place(f"turns-{storage}")
    flags = [f"--temp_location={yarn.folder('temp')}", *yarn.checkpoint_flags]
    running = submitter.python(PROGRAM, f"--turns={turns}", *(flags if storage == "hdfs" else []))
    (turns / "0").write_text("150")
    wait_for_executors(running, 2, "the executors")
    application = running.application()
    wait_until(lambda: bool(yarn.python_workers(application)), "a Python worker")
    kill(max(jvms(EXECUTOR, application)))
    (turns / "end").touch()
    done = running.done()
    succeeded(done, yarn)
    assert "turn 0 is done" in done.output
    assert yarn.files("/beam/temp") == []


def test_executors_come_for_a_pipeline_and_go_after_it(submitter: Submitter, yarn: Yarn) -> None:
    turns = yarn.place("turns-of-dynamic-allocation")
    flags = [f"--turns={turns}", "--held", "--parallelism=6"]
    running = submitter.python(PROGRAM, *flags, conf=DYNAMIC)
    for turn in range(2):
        (turns / f"{turn}").write_text("600")
        wait_for_executors(running, MAX_EXECUTORS, f"more executors in turn {turn}")
        (turns / f"{turn}.through").touch()
        wait_for_executors(running, 1, f"the end of idle executors after turn {turn}")
    (turns / "end").touch()
    done = running.done()
    succeeded(done, yarn)
    assert "turn 1 is done" in done.output


def test_executors_come_and_go_with_the_elements_of_a_stream(
    submitter: Submitter, yarn: Yarn
) -> None:
    folder, end = yarn.place("numbers"), yarn.place("end")
    running = submitter.spark_submit(
        "cluster",
        STREAM,
        *(f"--folder={folder}", f"--end={end}/end", "--parallelism=6"),
        *(f"--checkpoint_dir={yarn.folder('slow')}", f"--temp_location={yarn.folder('temp')}"),
        *("--batch_interval_millis=200", *yarn.checkpoint_flags),
        conf=DYNAMIC,
    )
    for count in (1, 2):
        done = folder / f"{count}.done"
        (folder / f"{count}.work").touch()
        wait_for_executors(running, MAX_EXECUTORS, f"more executors for {count}")
        (folder / f"{count}.through").touch()
        wait_until(done.exists, f"the end of {count}")
        wait_for_executors(running, 1, f"the end of idle executors after {count}")
    (end / "end").touch()
    succeeded(running.done(), yarn)
