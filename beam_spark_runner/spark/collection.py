"""Python's garbage collector in Spark's workers."""

import gc


def exempt_from_collection() -> None:
    """Have the collector leave alone what is loaded by now; once in a process.

    PySpark's workers collect after every task, and the next task waits for it: 50 ms and more
    for the objects of the imported modules alone.
    """
    if gc.get_freeze_count() == 0:
        gc.collect()
        gc.freeze()
