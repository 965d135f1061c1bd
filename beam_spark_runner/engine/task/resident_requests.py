"""What the driver and a Spark task that stays for several requests send to each other."""

from collections.abc import Sequence
from typing import NamedTuple

from beam_spark_runner.engine.program import LevelProgram


class EpochRequest(NamedTuple):
    """An epoch that the task is to run. The response has the reports of its tasks.

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


class SegmentRequest(NamedTuple):
    """A segment of a bounded plan that the task is to begin. The response: see ``begin_segment``.

    Attributes:
        programs: the programs of the segment's levels.
        budget_s: the time after which the task stops.
    """

    programs: Sequence[LevelProgram]
    budget_s: float


Request = EpochRequest | SegmentRequest
Response = list[bytes] | bytes | None
"""The reports of the tasks of an epoch, or the rows and reports of a segment; None: its rows do not
fit in memory."""
