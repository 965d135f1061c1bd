"""The line that remains on the terminal after the end of a pipeline."""

from collections.abc import Sequence
from dataclasses import dataclass

from beam_spark_runner.observing.line_parts import count_text, time_text


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineEnd:
    """What a pipeline has done by its end.

    Attributes:
        state: Its last state.
        took_s: The time since the program's start, in seconds.
        epoch: The number of its last epoch. None: it has committed none, or ran in batch.
        read: The number of elements that its sources have emitted; 0: it has no sources.
        files: What it has written: patterns of files, each with their number.
        spark_jobs: The number of its Spark jobs. None: not known.
        is_all_removed: Whether all that it has stored is removed, so that it cannot be continued.
    """

    state: str
    took_s: float
    epoch: int | None = None
    read: int = 0
    files: Sequence[tuple[str, int]] = ()
    spark_jobs: int | None = None
    is_all_removed: bool = True


def last_line(outcome: PipelineEnd) -> Sequence[str]:
    """Return the parts of the line that remains after the end of a pipeline.

    Example:
        >>> " · ".join(last_line(PipelineEnd(
        ...     state="DONE", took_s=72, read=330_000, spark_jobs=4,
        ...     files=[("out/joined-*-of-00002", 2)])))
        'DONE in 1:12 · 330,000 elements read · out/joined-*-of-00002 (2 files) · 4 Spark jobs'
        >>> last_line(PipelineEnd(state="DRAINED", took_s=61, epoch=30, read=7))
        ['DRAINED after epoch 30', '7 elements read']
        >>> last_line(PipelineEnd(state="CANCELLED", took_s=86))
        ['CANCELLED after 1:26, temporary files are removed']
        >>> last_line(PipelineEnd(state="FAILED", took_s=86))
        ['FAILED after 1:26']
    """
    took = time_text(outcome.took_s)
    if outcome.state not in ("DONE", "DRAINED"):
        is_removed = outcome.state == "CANCELLED" and outcome.is_all_removed
        return [
            f"{outcome.state} after {took}"
            + (", temporary files are removed" if is_removed else "")
        ]
    if outcome.epoch is None:
        parts = [f"{outcome.state} in {took}"]
    else:
        parts = [f"{outcome.state} after epoch {outcome.epoch:,}"]
    if outcome.read:
        parts.append(f"{count_text(outcome.read, 'element')} read")
    parts += [
        pattern if number == 1 else f"{pattern} ({count_text(number, 'file')})"
        for pattern, number in outcome.files
    ]
    if outcome.spark_jobs:
        parts.append(count_text(outcome.spark_jobs, "Spark job"))
    return parts
