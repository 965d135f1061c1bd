"""The output of a segment as a value, by which its rows are found, checked and counted."""

from dataclasses import dataclass

from beam_spark_runner.scheduling.attempts import Attempts, Consumed


@dataclass(frozen=True, slots=True)
class OutputPart:
    """The rows that one Spark job has materialised.

    Attributes:
        run: The number of the Spark job, which the marks among the rows have, too.
        attempts: The task attempts that wrote the rows.
        by_partition: The ids of these attempts, if each has stored its rows in a file.
    """

    run: int
    attempts: Attempts
    by_partition: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentOutput:
    """The output of a segment that has run.

    Attributes:
        parts: One part for each Spark job that has materialised rows: several after rounds, none
            if no later segment reads rows of this one.
        size_bytes: The size of the rows in Arrow's format.
    """

    parts: tuple[OutputPart, ...] = ()
    size_bytes: int = 0

    @property
    def made_by(self) -> Consumed:
        """Return the attempts that wrote the rows, by run."""
        return {part.run: part.attempts for part in self.parts}
