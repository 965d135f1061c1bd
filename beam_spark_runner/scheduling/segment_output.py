"""The output of a segment as a value, by which its rows are found, checked and counted."""

from dataclasses import dataclass

from beam_spark_runner.scheduling.attempts import Attempts, Consumed


@dataclass(frozen=True, slots=True)
class OutputPart:
    """The rows that one Spark job has materialised.

    Attributes:
        run: The number of the Spark job, which the marks among the rows have, too.
        attempts: The task attempts that wrote the rows.
        path: The path of files in shared storage; None: the rows are on the executors of one
            Spark session, and another one cannot read them.
    """

    run: int
    attempts: Attempts
    path: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentOutput:
    """The output of a segment that has run.

    Attributes:
        parts: One part for each Spark job that has materialised rows: several after rounds, none
            if no later segment reads rows of this one.
        size_bytes: The size of the rows in Arrow's format.
        monitoring_infos: The metrics of the segment, as serialised MonitoringInfos.
    """

    parts: tuple[OutputPart, ...] = ()
    size_bytes: int = 0
    monitoring_infos: tuple[bytes, ...] = ()

    @property
    def made_by(self) -> Consumed:
        """Return the attempts that wrote the rows, by run."""
        return {part.run: part.attempts for part in self.parts}

    @property
    def can_be_reopened(self) -> bool:
        """Whether another Spark session can read all of it."""
        return all(part.path is not None for part in self.parts)
