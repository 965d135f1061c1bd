"""Python's garbage collector in Spark's workers."""

import gc

_NEW_OBJECTS = 5_000
"""After which the collector looks at the newest objects. Python's 700 are fewer than a chunk and
the accumulators of its keys take, of which next to none are garbage."""

_PYTHONS_OWN = (700, 2_000)  # thresholds, to version 3.12 and since

_is_exempt = False  # Python could say, but counts all objects to do so: 15 ms in each task


def exempt_from_collection() -> None:
    """Have the collector leave alone what is loaded by now; once in a process.

    PySpark's workers collect after every task, and the next task waits for it: 50 ms and more
    for the objects of the imported modules alone. Newer objects are looked at less often than
    Python would, unless the program has set a threshold.
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
