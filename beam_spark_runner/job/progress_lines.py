"""The progress line of a job, in batch and in epochs."""

import contextlib
import sys
from collections.abc import Callable

from beam_spark_runner.job.stream_watch import StreamWatch
from beam_spark_runner.scheduling.stream_line import StreamLine
from beam_spark_runner.spark.session.handle import SessionHandle
from beam_spark_runner.spark.session.progress import ProgressLine, Watch, watch


def batch_line(
    session: SessionHandle,
    job_id: str,
    segments: int,
    *,
    residuals: Callable[[], int],
    elements: Callable[[], int],
) -> ProgressLine:
    """Return the line of a batch pipeline.

    Args:
        session: where it runs.
        job_id: the tag of its Spark jobs.
        segments: how many it has.
        residuals: how many are known to wait.
        elements: how many are known to be processed.
    """
    seen_by: Watch | None = None
    with contextlib.suppress(Exception):  # then only what this process knows is shown
        seen_by = watch(session.spark, job_id, is_connect=session.is_connect)
    return ProgressLine(seen_by, segments, sys.stderr, residuals=residuals, elements=elements)


def stream_line(stream: StreamWatch) -> ProgressLine:
    """Return the line of a streaming pipeline. Spark is not asked: epochs are too short."""
    line = StreamLine()
    return ProgressLine(None, 0, sys.stderr, text=lambda: stream.text(line))
