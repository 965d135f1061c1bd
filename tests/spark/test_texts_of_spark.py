"""All that this version of Spark can say when it gives a job up: each text has a known meaning.

Spark has no names for most of these errors. A version with a new text fails here, and only
here: add it to the table, and to ``spark/driver/spark_errors.py`` if it means "run it again".
"""

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pyspark
import pytest

from beam_spark_runner.spark.driver import spark_errors
from beam_spark_runner.spark.driver.spark_errors import machines_were_lost
from beam_spark_runner.spark.versions import SparkVersion
from tests.class_files import constants_of

JARS = Path(pyspark.__file__).parent / "jars"
(CORE,) = JARS.glob("spark-core_*.jar")
(COMMON,) = (jar for jar in JARS.glob("spark-common-utils_*.jar"))

SPEAKERS = (
    "scheduler.DAGScheduler",
    "scheduler.TaskSetManager",
    "scheduler.TaskResultGetter",
    "MapOutputTracker",
    "broadcast.TorrentBroadcast",
    "errors.SparkCoreErrors",
    "storage.BlockNotFoundException",
    "FetchFailed",
    "ExecutorLostFailure",
    "TaskResultLost",
    "Resubmitted",
    "scheduler.ExecutorProcessLost",
    "scheduler.ExecutorKilled",
    "scheduler.ExecutorDecommission",
)
WORTH_A_LOOK = re.compile(
    r"abort|roll|re-?run|maximum|resubmi|indeterminate|run anywhere|cancel|serializ|fail|recover"
    r"|bigger|succeeded|not retry|not found|\blost\b|dead|could not|not able|unable|exceed"
    r"|shut ?down|retained|communicating|error reply|corrupt|exited|does not exist|not supported",
    re.IGNORECASE,
)
ABORTED = "Job aborted due to stage failure: {}\nDriver stacktrace:\n"
"""How the scheduler's reasons for an abort reach a driver."""
FAILED_TASK = ABORTED.format(
    "Task 1 in stage 2.0 failed 4 times, most recent failure: Lost task 1.3 in stage 2.0 (TID 9) "
    "(10.0.0.3 executor 1): {}\n"
)

STAGE_RUNS_AGAIN = (
    "has failed the maximum allowable number of",
    "has exceeded the maximum allowable total stage attempts",
    "has been resubmitted for the maximum",
    "cannot rollback completed result stages",
    "cannot rollback a running result stage",
    "Rollback failed due to: ",
    "rollback failed due to: ",
    "rolling back due to indeterminate output",
    "Task with indeterminate results from old attempt succeeded, aborting the stage",
    "A pipelined group member failed with a fetch failure",
    "A shuffle map stage with indeterminate output was failed and retried",
)
STAGE_IS_FINAL = (
    "Task creation failed: ",
    "Task not serializable: ",
    "Task serialization failed: ",
    "Failed to serialize task ",
    " Exception during serialization: ",
    " had a not serializable result: ",
    " can not write to output file: ",
    "Total size of serialized results of ",
    "cancelled because SparkContext was shut down",
    "because Stage \1 was cancelled",
    "Job %d cancelled %s",
    "as part of cancellation of all jobs",
    "part of cancelled job ",
    "due to testing config",
    # Barriers, pipelined shuffles and several resource profiles: we use none of these.
    "Could not recover from a failed barrier ResultStage",
    "Stage failed because barrier task",
    "from barrier stage",
    "Could not kill zombie barrier tasks",
    "pipelined",
    "Multiple ResourceProfiles",
)
TASK_RUNS_AGAIN = (
    "FetchFailed(",
    "ExecutorLostFailure (executor ",
    "TaskResultLost (result lost from block manager)",
    "Error communicating with MapOutputTracker",
    "Error reply received from MapOutputTracker",
)
PARTS = (  # of texts above, or around a cause that has a separate meaning
    "Job aborted due to stage failure: ",
    "Task %d in stage %s failed %d times, most recent failure: %s",
    "Aborting ",
    "cannot run anywhere due to node and executor excludeOnFailure",
    "ExcludeOnFailure behavior can be configured",
    "Lost \1 (\1 executor \1): \1",
    "Most recent failure reason:",
    "failure reason: ",
    "and has to fail this job. Please eliminate the indeterminacy",
    " was cancelled",
    ") is bigger than ",
    "However, Spark cannot rollback the ",
    "was failed and retried. However, Spark can only do this",
    # Reasons for which an executor went: they stand in an ExecutorLostFailure.
    "Executor Process Lost",
    "Executor killed by driver.",
    "Executor decommission: ",
    "Resubmitted (resubmitted due to lost executor)",
    "Failed to get \1 of \1",  # see the test of broadcasts
    "Failed to get ",
    "corrupt remote block ",
    "Block \1 not found",
)
LOGGED = (  # or raised where it means a defect of Spark's, or in methods that we do not use
    "Removing stage %d from failed set", "Asked to cancel", "Asked to update", "Resubmitting ",
    "otherwise a group that cannot co-fit may deadlock", " into cancelled job groups",
    "Failed to cancel job group", "Failed to get query execution ID", "Skip running a job",
    "Creating new stage failed due to exception", "aborted); not co-scheduling",
    "All jobs depending on the ", "were aborted", "Failed to update accumulator",
    " with indeterminate output ", " with indeterminate output was failed, ",
    "we will roll back and rerun", "indeterminate child stages", "indeterminate rollback",
    "marking it as failed and ", "resubmit if allowed", "Rolling back",
    "stage must be running to be cancelled and resubmitted", "Could not kill all tasks",
    ") due to rollback.", " is finished. Cancelling ", "Could not cancel tasks",
    " completion from an older attempt of indeterminate stage", "Ignoring ",
    "due to a fetch failure", "due to fetch failure", ") as failed", "due to a barrier task",
    "due to barrier",
    "Received fetch failure from ", "Push based shuffle expected to be enabled",
    "after cancelling previously scheduled task", "some of its tasks had failed", "Resubmitted ",
    "Considering removal of executor", "Executor lost: ", "Shuffle files lost for ",
    "Host added was in lost list", "Trying to cancel unregistered job", "Aborting stage because",
    "Tried aborting stage", ") failed in ", " failed: ", "because a producer failed",
    "Finish but did not commit", "The maximum recommended task size", "succeeded on",
    "another attempt succeeded", "; not retrying", "failed because while it was being computed",
    "failed because its executor was shutting", "maximum number of failures for the task",
    "times; aborting job", "failed, but the task will not", "be re-executed", "needs to be re-run",
    "has already succeeded", "has been aborted", "Could not deserialize TaskEndReason",
    "Tasks result size has exceeded", "Unable to deserialize", "Failed to store ",
    "Exception encountered during deserializing", "Failed to get locally stored broadcast data",
    "Failed to get cache locations", "fail, remove all pieces", "Checkpoint failed: ",
    "TaskSetManagers should only send Resubmitted", "even though we held a lock",
    "Failed to create directory", "which is not a shuffle block", "to non-existent accumulator",
    " failed ", "its executor exited for a reason", "its executor was shutting down",
    "exited for a reason unrelated", "Test injection: ", "Failed to get block",
    "is not supported", " does not exist", "Exception in ",
)  # fmt: skip


def spoken() -> list[str]:
    """Return the texts of Spark's that may say why a job failed."""
    texts = {
        text
        for name in SPEAKERS
        for text in constants_of(CORE, f"org.apache.spark.{name}")
        if " " in text and len(text) > 11 and WORTH_A_LOOK.search(text)
    }
    return sorted(texts)


def kinds_of(text: str) -> list[str]:
    tables = {
        "stage runs again": STAGE_RUNS_AGAIN,
        "final": STAGE_IS_FINAL,
        "task runs again": TASK_RUNS_AGAIN,
        "part": PARTS,
        "logged": LOGGED,
    }
    return [kind for kind, table in tables.items() if any(known in text for known in table)]


def test_every_text_of_this_spark_is_known() -> None:
    assert len(spoken()) > 60, "texts are elsewhere in this version"
    unknown = "\n".join(repr(text) for text in spoken() if not kinds_of(text))
    assert unknown == ""


def test_what_is_known_of_them_is_what_is_done() -> None:
    wrong = []
    for text in spoken():
        said = text.replace("\1", "X").replace("%s", "X").replace("%d", "7")
        # The first that has it, as in the table.
        match next(iter(kinds_of(text)), "unknown"):
            case "stage runs again":
                is_right = machines_were_lost(RuntimeError(ABORTED.format(f"S (at x.py:1){said}")))
            case "final":
                is_right = not machines_were_lost(RuntimeError(ABORTED.format(said)))
            case "task runs again":
                is_right = machines_were_lost(RuntimeError(FAILED_TASK.format(said)))
            case _:
                is_right = True
        if not is_right:
            wrong.append(text)
    assert wrong == []


NO_DISK = "java.io.IOException: No space left on device"
LOST_BY_MEMORY = (
    "ExecutorLostFailure (executor 1 exited caused by one of the running tasks) "
    "Reason: java.lang.OutOfMemoryError: Java heap space"
)


@pytest.mark.parametrize(
    ("text", "runs_again"),
    [
        pytest.param(
            ABORTED.format(
                "ResultStage 5 (x) has failed the maximum allowable number of times: 4. Most "
                f"recent failure reason:\nFetchFailedException: {NO_DISK}"
            ),
            True,
            id="a stage, whatever a machine was lost by",
        ),
        pytest.param(FAILED_TASK.format(NO_DISK), False, id="a task that has no disk"),
        pytest.param(FAILED_TASK.format(LOST_BY_MEMORY), False, id="a task that kills executors"),
        pytest.param(
            FAILED_TASK.format(
                "ExecutorLostFailure (executor 1 exited unrelated to the running tasks) "
                "Reason: Executor Process Lost"
            ),
            True,
            id="a task whose executors go",
        ),
        pytest.param(
            FAILED_TASK.format("ValueError: the maximum allowable number of cannot rollback"),
            False,
            id="a task's own words",
        ),
        pytest.param(
            FAILED_TASK.format("java.io.IOException: Failed to get broadcast_3_piece0"),
            True,
            id="a broadcast that is gone",
        ),
        pytest.param(
            FAILED_TASK.format("corrupt remote block broadcast_3_piece0 of broadcast_3: 1 != 2"),
            True,
            id="a broadcast that came torn",
        ),
    ],
)
def test_the_stage_comes_before_the_task(text: str, runs_again: bool) -> None:
    assert machines_were_lost(RuntimeError(text)) is runs_again


CONDITIONS = {
    "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND": True,
    # Of our own making, or of a configuration's.
    **dict.fromkeys(
        (
            "INTERNAL_ERROR_BROADCAST", "INTERNAL_ERROR_EXECUTOR", "INTERNAL_ERROR_MEMORY",
            "INTERNAL_ERROR_SHUFFLE", "INVALID_EXECUTOR_MEMORY", "PIPELINED_SHUFFLE_UNSUPPORTED",
            "PIPELINED_SHUFFLE_CROSS_JOB_REUSE", "PLAN_VALIDATION_FAILED_RULE_EXECUTOR",
            "STAGE_MATERIALIZATION_MULTIPLE_FAILURES", "UNABLE_TO_FETCH_HIVE_TABLES",
        ),
        False,
    ),
}  # fmt: skip
ABOUT_MACHINES = re.compile(r"BLOCK|CHECKPOINT_RDD|BROADCAST|ROLLBACK|FETCH|SHUFFLE|EXECUTOR|STAGE")


class Named(Exception):
    """As pyspark raises it, on Connect too."""

    def __init__(self, condition: str) -> None:
        super().__init__("words")
        self.getCondition = lambda: condition


def test_every_condition_of_this_spark_is_known() -> None:
    with zipfile.ZipFile(COMMON) as archive:
        names = {"error/error-conditions.json", "error/error-classes.json"} & {*archive.namelist()}
        found = {name for each in names for name in json.loads(archive.read(each))}
    found = {
        name
        for name in found
        if ABOUT_MACHINES.search(name)
        and not name.startswith(("_LEGACY", "STREAMING_", "STATE_", "DATATYPE"))
    }
    assert found
    assert found - set(CONDITIONS) == set()
    for condition, runs_again in CONDITIONS.items():
        assert machines_were_lost(Named(condition)) is runs_again


@pytest.mark.spark
def test_rows_that_went_with_an_executor(spark_session: Any) -> None:
    """The text is in the message of a task's failure; class and condition are in its cause."""
    kept = spark_session.range(100).localCheckpoint()
    for rdd in dict(spark_session.sparkContext._jsc.getPersistentRDDs()).values():
        rdd.unpersist(True)
    with pytest.raises(Exception, match="Checkpoint block") as caught:
        kept.collect()
    assert machines_were_lost(caught.value)
    names = list(spark_errors._java_causes(caught.value))
    assert "org.apache.spark.SparkException" in [name for name, _ in names]
    if SparkVersion.parse(pyspark.__version__) >= (4, 0):
        assert "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND" in [condition for _, condition in names]
