"""Python's garbage collector in Spark's workers."""

import gc

_NEW_OBJECTS = 5_000
"""The threshold of the youngest generation. Python's 700 objects are fewer than those of a chunk
and the accumulators of its keys, next to none of which are garbage."""

_PYTHONS_OWN = (700, 2_000)  # Python's thresholds: to version 3.12, and since

_is_exempt = False  # gc.get_freeze_count() counts all objects: 15 ms in each task


def exempt_from_collection() -> None:
    """Exempt all objects that exist by now from garbage collection; once in a process.

    PySpark's workers collect after every task, and the next task waits for it: 50 ms and more
    for the objects of the imported modules alone. Newer objects are collected less often than by
    Python's default, unless the program has set a threshold.
    """
    global _is_exempt
    if _is_exempt:
        return
    _is_exempt = True
    gc.collect()
    gc.freeze()
    young, *older = gc.get_threshold()
    if young in _PYTHONS_OWN:
        gc.set_threshold(_NEW_OBJECTS, *older)
