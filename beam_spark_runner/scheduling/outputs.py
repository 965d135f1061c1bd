"""The output of a segment as a value: enough to find, check and count its rows."""

from dataclasses import dataclass

from beam_spark_runner.scheduling.attempts import Attempts, Consumed


@dataclass(frozen=True, slots=True)
class OutputPart:
    """The rows that one Spark job has materialised.

    Attributes:
        run: the number of the Spark job; the rows' marks carry it.
        attempts: the task attempts whose rows they are.
        path: of files in shared storage; None: the rows are on the executors of one Spark
            session and cannot be reopened by another one.
    """

    run: int
    attempts: Attempts
    path: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentOutput:
    """The output of a segment that has run.

    Attributes:
        parts: one for each Spark job that has materialised rows: several after rounds, none
            where no later segment reads anything.
        size_bytes: of the rows, as Arrow holds them.
        monitoring_infos: the segment's metrics, serialised MonitoringInfos.
    """

    parts: tuple[OutputPart, ...] = ()
    size_bytes: int = 0
    monitoring_infos: tuple[bytes, ...] = ()

    @property
    def made_by(self) -> Consumed:
        """Return run -> the attempts whose rows the output has."""
        return {part.run: part.attempts for part in self.parts}

    @property
    def can_be_reopened(self) -> bool:
        """Whether another Spark session can read all of it."""
        return all(part.path is not None for part in self.parts)
