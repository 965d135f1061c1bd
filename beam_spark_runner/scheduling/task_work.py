"""What tasks have read, and for how long they have worked. Nothing is decided by it."""

from dataclasses import dataclass

MIN_SHARE = 0.3
"""The part of a task's rows from which on a key is large."""
MIN_ROWS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRows:
    """The key with the most rows of a task.

    Attributes:
        step: The full name of the step that groups by it.
        text: The key, as Python shows it.
        rows: How many rows of the task have it.
    """

    step: str
    text: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskWork:
    """The work of one task.

    Attributes:
        level: The number of its level among all levels of the plan.
        partition: The number of its partition.
        spent_s: The time since it has got its first row.
        rows: The rows that it has read.
        largest: The key with the most rows. None: none has a great part.
        is_done: Whether it has processed all of them.
    """

    level: int
    partition: int
    spent_s: float
    rows: int
    largest: KeyRows | None = None
    is_done: bool = True


def is_large(rows: int, of: int) -> bool:
    """Whether so many rows of one key, of so many rows, are worth to be named.

    Example:
        >>> is_large(400, 1_000), is_large(40, 100), is_large(200, 1_000)
        (True, False, False)
    """
    return rows >= MIN_ROWS and rows >= MIN_SHARE * of
