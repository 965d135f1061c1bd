"""What an exception of Spark's means: whether to run a segment again, and what to tell people."""

import re

_FINAL = (
    (r"No space left on device", "a disk is full: Spark's local directory, or the temp folder"),
    (
        r"Python worker exited unexpectedly|PYTHON_WORKER_CRASH",
        "user code, or a library it calls, ended the Python worker (os._exit, a crash, "
        "or the system's out-of-memory killer)",
    ),
    (r"OutOfMemoryError", "the JVM ran out of memory"),
    (r"SparkContext (was|has been) shut ?down|stopped SparkContext", "Spark was stopped"),
)
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
    for pattern, reason in _FINAL:
        if re.search(pattern, text):
            return f"{reason} ({_line(text)})"
    return _line(text) or type(error).__name__


def _line(text: str) -> str:
    lines = [line.strip(" :\t") for line in text.splitlines() if line.strip()]
    # A Py4J error's first line only says that a call failed; the Java exception follows it.
    java = [line for line in lines if line.startswith(("java.", "org.apache."))]
    return (java or lines or [""])[0]
