"""What the driver and a task that runs many epochs send to each other."""

from collections.abc import Sequence
from typing import NamedTuple

from beam_spark_runner.engine.program import LevelProgram


class Request(NamedTuple):
    """An epoch that a task is to run.

    Attributes:
        chain: the number of the programs, since the beginning of the task.
        programs: the programs of the levels; None: those that this number has had before.
        rows: the rows that each task of the first level reads.
        max_bytes: see ``run_chained``.
    """

    chain: int
    programs: Sequence[LevelProgram] | None
    rows: str
    max_bytes: int


Response = list[bytes] | None
"""The reports of the tasks of an epoch; None: its rows do not fit in memory."""
