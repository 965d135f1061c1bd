"""The stacks of threads of this process."""

from apache_beam.runners.worker import worker_status


def stacks(thread_name: str) -> str:
    """Return the stacks of the threads of this process whose names begin with ``thread_name``."""
    dump: str = worker_status.thread_dump(thread_name)
    return dump
