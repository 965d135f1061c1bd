"""Classifies exceptions of Spark: whether a segment runs again, and the message for users."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError

from beam_spark_runner.spark import pyspark_internals
from beam_spark_runner.spark.java_errors import line_of, text_of_error

_FINAL = (
    (r"No space left on device", "a disk is full: Spark's local directory, or the temp folder"),
    (
        r"Python worker exited unexpectedly|PYTHON_WORKER_CRASH",
        "user code, or a library it calls, ended the Python worker (os._exit, a crash, "
        "or the system's out-of-memory killer)",
    ),
    (
        r"No module named '(pyarrow|numpy|xxhash|apache_beam|beam_spark_runner)'",
        "Spark's workers do not run the Python that has Beam and this runner; set PYSPARK_PYTHON "
        "to that Python",
    ),
    (r"OutOfMemoryError", "the JVM ran out of memory"),
    (
        r"SparkContext (was|has been) shut ?down|stopped SparkContext"
        r'|SparkContext\.\w+\(\)" is null',  # a context has no such parts once it has stopped
        "Spark was stopped",
    ),
)
_WORKER_EXIT = "Python worker exited unexpectedly"
_CRASH = re.compile(r"Fatal Python error: .*")
_CRASHED_THREAD = re.compile(r"^ *Current thread .*\n(?:  File .*(?:\n|\Z))*", re.MULTILINE)
# Messages of Spark's scheduler when it cannot complete a stage because machines were lost, for
# whatever reason. tests/spark/test_texts_of_spark.py has all of them.
_STAGE_WAS_GIVEN_UP = re.compile(
    r"Job aborted due to stage failure: (?!Task \S+ in stage \S+ failed)[^\n]*?(?:"
    r"(?:failed|resubmitted for|exceeded) the maximum (?:allowable )?"
    r"|indeterminate output|indeterminate results from old attempt"
    r"|cannot rollback|[Rr]ollback failed|[Rr]olling back"
    r"|failed with a fetch failure"
    r")"
)
_CONDITIONS_OF_LOST_MACHINES = frozenset({"CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"})
_CLASSES_OF_LOST_MACHINES = frozenset(
    f"org.apache.spark.{name}"
    for name in (
        "ExecutorDeadException",
        "shuffle.FetchFailedException",
        "shuffle.MetadataFetchFailedException",
        "storage.BlockFetchException",
        "storage.BlockNotFoundException",
    )
)
# Errors of a task's last attempt, for when there is no class or condition: Spark has most errors
# only as text, and Connect never sends the classes of causes.
_TASKS_LOST_MACHINES = re.compile(
    r"Checkpoint block \S+ not found"
    r"|FetchFailed|TaskResultLost"
    r"|ExecutorLostFailure|ExecutorDeadException|[Ee]xecutor (heartbeat timed out|lost)"
    r"|[Ww]orker lost|Slave lost|RpcEndpoint died|Remote RPC client disassociated"
    r"|BlockFetchException|BlockNotFoundException|Block rdd_\S+ (was )?not found"
    r"|Failed to get broadcast_|corrupt remote block broadcast_"
    r"|(Error communicating with|Error reply received from) MapOutputTracker"
    r"|Could not (find|read|locate) block|BLOCK_NOT_FOUND"
)


def machines_were_lost(error: BaseException) -> bool:
    """Whether Spark gave up because executors went away, and not because of what ran on them.

    Errors of user code are not among these: tasks report them.
    """
    text = text_of_error(error)
    if _STAGE_WAS_GIVEN_UP.search(text) is not None:
        return True
    if any(re.search(pattern, text) for pattern, _ in _FINAL):
        return False
    if _condition_of(error) in _CONDITIONS_OF_LOST_MACHINES:
        return True
    for name, condition in _java_causes(error):
        if name in _CLASSES_OF_LOST_MACHINES or condition in _CONDITIONS_OF_LOST_MACHINES:
            return True
    return _TASKS_LOST_MACHINES.search(text) is not None


def _condition_of(error: BaseException) -> str | None:
    """Return the name that Spark has for an error, where pyspark knows it."""
    # Spark 3.5 calls it an error class.
    get = getattr(error, "getCondition", None) or getattr(error, "getErrorClass", None)
    return None if get is None else get()


def _java_causes(error: BaseException) -> Iterator[tuple[str, str | None]]:
    """Yield class and condition of the Java exception and of its causes; none on Spark Connect."""
    cause = pyspark_internals.java_cause(error)
    with contextlib.suppress(Py4JError, OSError):  # the JVM may have ended meanwhile
        while cause is not None:
            # Its text begins with the class, and Spark puts the condition before the message.
            match = re.match(r"([\w.$]+)(?:: \[([A-Z0-9_.]+)\])?", cause.toString())
            if match is not None:
                yield match[1], match[2]
            cause = cause.getCause()


def reason_of(error: BaseException) -> str:
    """Return one line for users: Spark's message, after its meaning if that is known."""
    text = text_of_error(error)
    if isinstance(error, (Py4JNetworkError, ConnectionError)):
        return f"Spark's JVM has ended, or does not answer ({line_of(text)})"
    crash = _CRASH.search(text)
    if crash is not None:
        frames = _CRASHED_THREAD.search(text, crash.end())
        return "the Python worker crashed: " + "\n".join(
            [crash[0], *([frames[0].rstrip()] if frames else [])]
        )
    for pattern, reason in _FINAL:
        if re.search(pattern, text):
            line = line_of(text)
            return reason if line.startswith(_WORKER_EXIT) else f"{reason} ({line})"
    return line_of(text) or type(error).__name__


def stages_after(spark: Any, tag: str, error: BaseException) -> int | None:
    """Return how many Spark stages of its job come after the one that failed.

    Spark numbers the stages of a job in the order in which they depend on each
    other. None: unknown, as on Spark Connect.
    """
    match = re.search(r"[Tt]ask \S+ in stage (\d+)\.", text_of_error(error))
    if match is None:
        return None
    with contextlib.suppress(Exception):
        tracker = pyspark_internals.scala_context(spark.sparkContext).statusTracker()
        for job in tracker.getJobIdsForTag(tag):
            stages = sorted(tracker.getJobInfo(job).get().stageIds())
            if int(match[1]) in stages:
                return len(stages) - 1 - stages.index(int(match[1]))
    return None
