"""cloudpickle's memory of the classes that it has unpickled, which must not outlive a job.

cloudpickle sends a class of the main module by value, with an id. It makes the class once in a
process, and returns that one for the same id ever after. A Python worker outlives jobs: of a class
that the program has sent with two jobs, the later one would get the earlier one's, with the
variables and the class attributes that the program had then.
"""

from weakref import WeakKeyDictionary, WeakValueDictionary

from apache_beam.internal.cloudpickle import cloudpickle


class DynamicClasses:
    """The classes that one job has unpickled. Threads: one job at a time."""

    def __init__(self) -> None:
        self._ids = WeakKeyDictionary[type, str]()
        self._by_id = WeakValueDictionary[str, type]()

    def serve(self) -> None:
        """Make these the classes that cloudpickle knows."""
        cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS = self._ids
        cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID = self._by_id
