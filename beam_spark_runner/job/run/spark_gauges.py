"""The status of a streaming pipeline as gauges of Spark's metrics system."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from beam_spark_runner.core.rendering import message_of
from beam_spark_runner.driving.session import Session
from beam_spark_runner.job.prepare.prepare import PreparedJob
from beam_spark_runner.observing.epoch_status import EpochStatus
from beam_spark_runner.spark.session.gauges import set_gauges
from beam_spark_runner.spark.session.handle import SessionHandle


def show_in_spark(
    prepared: PreparedJob, session: Session, warn: Callable[[str], None]
) -> Callable[[EpochStatus], None]:
    """Return a function that sets the gauges, for the status of each epoch.

    It does nothing without ``--spark_metrics``, in batch, and on Spark Connect.

    Args:
        prepared: The pipeline.
        session: The session in which it runs.
        warn: Is called with the reason if there are no gauges although the option is set.
    """
    if not prepared.config.spark_metrics:
        return lambda status: None
    if not isinstance(session, SessionHandle):
        warn("--spark_metrics has no effect without Spark; --metrics_port serves metrics")
        return lambda status: None
    if session.is_connect or not prepared.plan.is_streaming:
        where = "on Spark Connect" if session.is_connect else "in batch"
        warn(f"--spark_metrics has no effect {where}; --metrics_port serves metrics there, too")
        return lambda status: None
    return _SparkGauges(session.spark.sparkContext, prepared.config.job_name or "job", warn).show


class _SparkGauges:
    def __init__(self, context: Any, name: str, warn: Callable[[str], None]) -> None:
        self._context, self._name, self._warn = context, name, warn
        self._has_failed = False

    def show(self, status: EpochStatus) -> None:
        """Set the gauges. After an error of Spark, warn once, and set them no more."""
        if self._has_failed:
            return
        try:
            set_gauges(self._context, _values(self._name, status))
        except Exception as error:  # Py4J's: Spark may be ending
            self._has_failed = True
            self._warn(
                f"--spark_metrics: Spark's metrics are no longer updated: {message_of(error)}"
            )


def _values(name: str, status: EpochStatus) -> Mapping[tuple[str, ...], float]:
    values: dict[tuple[str, ...], float] = {("epoch",): status.epoch}
    for part, took_us in status.parts_us.items():
        values["last_epoch_seconds", part.value] = took_us / 1e6
    for step, step_status in status.steps.items():
        values["output_watermark_ms", step] = step_status.output_us / 1e3
        if step_status.restrictions is not None:
            values["pending_restrictions", step] = step_status.restrictions
            # A gauge keeps its last value, which would look like the present backlog.
            values["backlog", step] = (
                math.nan if step_status.backlog is None else step_status.backlog
            )
        if step_status.left is not None:
            values["pending_records", step] = step_status.left
    for steps, size in status.stored_bytes.items():
        values["state_bytes", steps] = size
    return {("beam", name, *path): value for path, value in values.items()}
