"""What an exception of Spark's means: whether to run a segment again, and what to tell people."""

import contextlib
import re
from typing import Any

_FINAL = (
    (r"No space left on device", "a disk is full: Spark's local directory, or the temp folder"),
    (
        r"Python worker exited unexpectedly|PYTHON_WORKER_CRASH",
        "user code, or a library it calls, ended the Python worker (os._exit, a crash, "
        "or the system's out-of-memory killer)",
    ),
    (
        r"No module named '(pyarrow|numpy|xxhash|apache_beam|beam_spark_runner)'",
        "the Python of Spark's workers is not the one that has Beam and this runner; "
        "PYSPARK_PYTHON says which they take",
    ),
    (r"OutOfMemoryError", "the JVM ran out of memory"),
    (r"SparkContext (was|has been) shut ?down|stopped SparkContext", "Spark was stopped"),
)
_WORKER_EXIT = "Python worker exited unexpectedly"
_CRASH = re.compile(r"Fatal Python error: .*")
_CRASHED_THREAD = re.compile(r"^ *Current thread .*\n(?:  File .*(?:\n|\Z))*", re.MULTILINE)
_MACHINES_WERE_LOST = re.compile(
    r"Checkpoint block \S+ not found|CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"
    r"|FetchFailed|failed the maximum allowable number of times"
    r"|ExecutorLostFailure|ExecutorDeadException|[Ee]xecutor (heartbeat timed out|lost)"
    r"|[Ww]orker lost|Slave lost|RpcEndpoint died|Remote RPC client disassociated"
    r"|cannot rollback|CANNOT_ROLLBACK|indeterminate output"
    r"|BlockFetchException|BlockNotFoundException|Block rdd_\S+ (was )?not found"
    r"|Failed to get broadcast_|Could not (find|read|locate) block|BLOCK_NOT_FOUND"
)


def machines_were_lost(error: BaseException) -> bool:
    """Whether Spark gave up because executors went away, and not because of what ran on them.

    What user code raises never comes here: tasks report it.
    """
    text = str(error)
    if any(re.search(pattern, text) for pattern, _ in _FINAL):
        return False
    return _MACHINES_WERE_LOST.search(text) is not None


def reason_of(error: BaseException) -> str:
    """Return one line for people: what Spark says, behind what it means where that is known."""
    text = str(error)
    crash = _CRASH.search(text)
    if crash is not None:
        frames = _CRASHED_THREAD.search(text, crash.end())
        return "the Python worker crashed: " + "\n".join(
            [crash[0], *([frames[0].rstrip()] if frames else [])]
        )
    for pattern, reason in _FINAL:
        if re.search(pattern, text):
            line = _line(text)
            return reason if line.startswith(_WORKER_EXIT) else f"{reason} ({line})"
    return _line(text) or type(error).__name__


def stages_behind(spark: Any, tag: str, error: BaseException) -> int | None:
    """Return how many Spark stages of its job come after the one that failed.

    Spark numbers the stages of a job in the order in which they depend on each
    other. None: it cannot be told, as on Spark Connect.
    """
    found = re.search(r"[Tt]ask \S+ in stage (\d+)\.", str(error))
    if found is None:
        return None
    with contextlib.suppress(Exception):
        tracker = spark.sparkContext._jsc.sc().statusTracker()
        for job in tracker.getJobIdsForTag(tag):
            stages = sorted(tracker.getJobInfo(job).get().stageIds())
            if int(found[1]) in stages:
                return len(stages) - 1 - stages.index(int(found[1]))
    return None


def _line(text: str) -> str:
    """Return the line that says what went wrong first."""
    _, is_traceback, traceback = text.rpartition("Traceback (most recent call last):\n")
    if is_traceback:  # its last line; indented are the frames before, and the JVM's behind it
        raised = re.search(r"^[\w.]+(: .*)?$", traceback, re.MULTILINE)
        if raised is not None:
            return raised[0]
    lost_task = re.search(r"most recent failure: Lost task .*?\): (.+)", text)
    if lost_task is not None:
        return _without_class(lost_task[1])
    lines = [line.strip(" :\t") for line in text.splitlines() if line.strip()]
    # A Py4J error's first line only says that a call failed; the Java exception follows it.
    java = [line for line in lines if line.startswith(("java.", "org.apache."))]
    return _without_class((java or lines or [""])[0])


def _without_class(line: str) -> str:
    return re.sub(r"^(?:[a-z]\w*\.)+\w+: ", "", line)
