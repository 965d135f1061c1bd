"""The progress line of a job, in batch and in epochs."""

import contextlib
import sys
from collections.abc import Callable

from beam_spark_runner.job.stream_watch import StreamWatch
from beam_spark_runner.scheduling.stream_line import StreamLine
from beam_spark_runner.spark.session.handle import SessionHandle
from beam_spark_runner.spark.session.progress import ProgressLine, TaskCounter, watch


def batch_line(
    session: SessionHandle,
    job_id: str,
    segments: int,
    *,
    residuals: Callable[[], int],
    elements: Callable[[], int],
) -> ProgressLine:
    """Return the progress line of a batch pipeline.

    Args:
        session: The Spark session in which it runs.
        job_id: The tag of its Spark jobs.
        segments: The number of segments of its plan.
        residuals: Returns the number of residuals that are reported as waiting.
        elements: Returns the number of elements that are reported as emitted.
    """
    seen_by: TaskCounter | None = None
    with contextlib.suppress(Exception):  # without it, the line shows no progress of Spark's tasks
        seen_by = watch(session.spark, job_id, is_connect=session.is_connect)
    return ProgressLine(seen_by, segments, sys.stderr, residuals=residuals, elements=elements)


def stream_line(stream: StreamWatch) -> ProgressLine:
    """Return the progress line of a streaming pipeline, without the progress of Spark's tasks."""
    line = StreamLine()
    return ProgressLine(None, 0, sys.stderr, text=lambda: stream.text(line))
