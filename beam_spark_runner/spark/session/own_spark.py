"""The Spark that the runner has started in this process: pipelines share it, and find it again.

It ends with the process, when another one is asked for, by ``stop``, and when it has been idle for
long.
"""

import contextlib
import logging
import os
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from beam_spark_runner.spark import pyspark_internals
from beam_spark_runner.spark.session.chosen_master import default_master
from beam_spark_runner.spark.session.conf import is_connect
from beam_spark_runner.spark.session.jvm_process import end_jvm
from beam_spark_runner.spark.session.launch import without_token

_LOGGER = logging.getLogger(__name__)


class OwnSpark:
    """A Spark that the runner has started.

    Args:
        spark: Its session, with the settings that only a new Spark can have.
        master: ``--spark_master_url`` of the pipeline for which it was started.
        settings: What ``settings_of_start`` has returned for that pipeline.
        on_idle: Is called in a thread once no pipeline has used it for ``idle_s``.

    Threads: the caller holds one lock for all calls.
    """

    def __init__(
        self,
        spark: Any,
        master: str | None,
        settings: Mapping[str, str],
        on_idle: "Callable[[OwnSpark], None]",
    ) -> None:
        self.spark = spark
        self.users = 0
        self._master = master or default_master()
        self._settings = settings
        self._on_idle = on_idle
        self._timer: threading.Timer | None = None
        self._jobs: frozenset[int] = frozenset()

    def take(self) -> None:
        """Begin the use by one pipeline."""
        self.users += 1
        self._stop_waiting()

    def leave(self, idle_s: float) -> None:
        """End the use by one pipeline; after that of the last one, begin to wait for another."""
        self.users -= 1
        if self.users or self.has_stopped():
            return
        self._jobs = self._jobs_outside_pipelines()
        self._timer = threading.Timer(idle_s, self._on_idle, (self,))
        self._timer.daemon = True
        self._timer.start()

    @property
    def is_local(self) -> bool:
        """Whether it runs in the JVM of this process alone."""
        return not is_connect(self.spark) and self._master.startswith("local")

    def has_stopped(self) -> bool:
        """Whether somebody has stopped its session in this process."""
        if is_connect(self.spark):
            return bool(self.spark.is_stopped)
        return pyspark_internals.is_stopped(self.spark.sparkContext)

    def has_died(self) -> str | None:
        """Return what has ended without being stopped here; None: nothing."""
        if is_connect(self.spark):
            return None
        if not pyspark_internals.jvm_answers():
            return "its JVM has ended"
        if pyspark_internals.has_ended(self.spark.sparkContext):
            return "its Spark application has ended"
        return None

    def differs_from(self, master: str | None, settings: Mapping[str, str]) -> str | None:
        """Return what a pipeline wants that only another Spark has; None: this one serves it.

        Args:
            master: ``--spark_master_url`` of the pipeline.
            settings: What ``settings_of_start`` returns for it.
        """
        wanted = master or default_master()
        if wanted != self._master:
            return f"it runs on {without_token(self._master)}, not on {without_token(wanted)}"
        names = {*settings.items()} ^ {*self._settings.items()}
        return f"another value of {min(names)[0]} is wanted" if names else None

    def is_used_otherwise(self) -> bool:
        """Whether the program has run Spark jobs of its own in it since its last pipeline."""
        return self._jobs_outside_pipelines() != self._jobs

    def abandon(self) -> None:
        """Wait for no more pipelines: the program has stopped it, or goes on using it."""
        self._stop_waiting()

    def end(self) -> None:
        """Stop it, and end its JVM. Its pipelines have ended."""
        self._stop_waiting()
        if is_connect(self.spark):
            with contextlib.suppress(Exception):  # the server may have gone
                self.spark.stop()
        # The context of spark-submit lives as long as the program: on YARN a second one cannot be
        # had.
        elif "PYSPARK_GATEWAY_PORT" not in os.environ:
            _stop(self.spark)
            end_jvm()

    def _jobs_outside_pipelines(self) -> frozenset[int]:
        if is_connect(self.spark) or self.has_stopped():
            return frozenset()
        return pyspark_internals.ungrouped_jobs(self.spark.sparkContext)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _stop(spark: Any) -> None:
    """Stop a Spark. If its JVM has ended, there is nothing to stop or to report."""
    warnings.filterwarnings(
        "ignore", message="Unable to cleanly shutdown Spark JVM", category=RuntimeWarning
    )
    try:
        spark.stop()
    except Exception:
        if pyspark_internals.jvm_answers():
            raise
        _LOGGER.debug("Spark's JVM has ended before its session was stopped", exc_info=True)
        pyspark_internals.forget_context()
