"""The job server: Spark, the jobs that run in it, and the ports at which clients submit them."""

import contextlib
import dataclasses
import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from beam_spark_runner.core.errors import RunnerError
from beam_spark_runner.core.rendering import message_of
from beam_spark_runner.job.access import check_files
from beam_spark_runner.job.export.health import Health
from beam_spark_runner.job.export.metrics_port import MetricsPort
from beam_spark_runner.job.export.prometheus import JobMetrics
from beam_spark_runner.job.files.stored_submission import versions_of
from beam_spark_runner.job.server.api import JobApi
from beam_spark_runner.job.server.job_queue import count_by_state
from beam_spark_runner.job.server.jobs import Jobs
from beam_spark_runner.job.server.page_opening import open_page
from beam_spark_runner.job.server.refusals import LostSparkError
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.options.server_options import ServerConfig
from beam_spark_runner.spark.session.handle import SessionHandle
from beam_spark_runner.spark.session.open_session import is_there, open_session
from beam_spark_runner.spark.session.own_spark import forget_ended

if TYPE_CHECKING:
    from beam_spark_runner.job.page.page_port import PagePort

_LOGGER = logging.getLogger(__name__)
_JOBS_END_WITHIN_S = 15.0
_LOOK_EVERY_S = 5.0
_FAIR = {"spark.scheduler.mode": "FAIR"}


class JobServer:
    """A job server, which serves until ``stop``.

    Spark is started before gRPC: its JVM begins with a fork, which is unsafe while gRPC's threads
    run. For the same reason, a JVM that has ended is not started again. If only the Spark
    application has ended, the next job starts another one in the same JVM. The port of metrics and
    probes is opened first: no Python code runs between that fork and its exec.

    Args:
        config: The configuration of the server.
        on_spark_lost: Is called in a thread of the server once the JVM has ended.
        starting: Is entered while Spark starts, and may raise an exception to end that.

    Attributes:
        url, artifact_url: See ``JobApi``.
        has_lost_spark: Whether the JVM has ended, so that no job can run any more.

    Raises:
        SparkSetupError: There is no usable Spark.
        OptionsError: A port is in use, or an option or a file that it names is invalid.
    """

    def __init__(
        self,
        config: ServerConfig,
        on_spark_lost: Callable[[], object] = lambda: None,
        starting: contextlib.AbstractContextManager[object] | None = None,
    ) -> None:
        check_files(config.access)  # before the slow start of Spark
        spark_conf = {**_FAIR, **dict(config.spark_conf)}
        self._spark_config = dataclasses.replace(config, spark_conf=tuple(spark_conf.items()))
        of_master = f" {config.spark_master_url}" if config.spark_master_url else ""
        self._health = Health(f"Spark{of_master} is starting")
        self._jobs: Jobs | None = None
        self._metrics: MetricsPort | None = None
        self._page: PagePort | None = None
        if config.metrics is not None:
            self._metrics = MetricsPort(
                config.metrics, self._job_metrics, self._health, self._jobs_by_state
            )
        try:
            _LOGGER.info("starting Spark%s …", of_master)
            with starting or contextlib.nullcontext():
                self._spark = open_session(self._spark_config)
        except BaseException:
            self._close_ports()
            raise
        self._health.note_waiting("jobs of earlier servers are read from --jobs_dir")
        self._spark_ui_url = self._spark.ui_url()
        self._lock = threading.Lock()  # guards ``_spark``
        spark = str(self._spark.version).partition(".")[0]
        try:
            jobs = self._jobs = Jobs(config, self._open_session, versions_of(spark))
            if config.page is not None:
                self._page = open_page(config, jobs, lambda: self._spark_ui_url)
            self._api = JobApi(
                config, jobs, lambda: self._spark_ui_url, jobs.resume, self._health.follow
            )
        except BaseException:
            if self._jobs is not None:
                self._jobs.end_all(0.0)
                self._jobs.delete_staged_files()
            self._close_ports()
            self._spark.close()
            raise
        self._health.note_ready()
        self.url, self.artifact_url = self._api.url, self._api.artifact_url
        self.has_lost_spark = False
        self._on_spark_lost = on_spark_lost
        self._is_stopping = threading.Event()
        threading.Thread(target=self._watch, name="beam-watch", daemon=True).start()

    @property
    def metrics_url(self) -> str | None:
        """The URL of the metrics of all jobs; None: they are not served."""
        return None if self._metrics is None else self._metrics.url

    @property
    def page_url(self) -> str | None:
        """The URL of the page of all jobs; None: there is none."""
        return None if self._page is None else self._page.url

    def stop(self) -> bool:
        """Accept no more jobs, end all jobs, close the ports, and stop Spark.

        Jobs that are stored in ``--jobs_dir`` are suspended, all others are cancelled.

        The ports stay open until the jobs have ended, so that clients get their last states.

        Returns:
            Whether all jobs have ended in time.
        """
        self._is_stopping.set()
        self._health.note_waiting("the job server is ending")
        assert self._jobs is not None
        have_ended = self._jobs.end_all(_JOBS_END_WITHIN_S)
        if not have_ended:
            _LOGGER.error("some jobs have not ended within %g s", _JOBS_END_WITHIN_S)
        self._api.stop()
        self._jobs.delete_staged_files()
        self._close_ports()
        self._spark.close()
        return have_ended

    def _job_metrics(self) -> list[JobMetrics]:
        return [] if self._jobs is None else self._jobs.job_metrics()

    def _jobs_by_state(self) -> Mapping[str, int]:
        # Jobs that are about to be found would look as if they had just failed, or ended.
        if self._jobs is None or not self._jobs.has_resumed:
            return {}
        return count_by_state(self._jobs.all())

    def _close_ports(self) -> None:
        if self._metrics is not None:
            self._metrics.close()
        if self._page is not None:
            self._page.close()

    def _watch(self) -> None:
        """Periodically drop abandoned preparations, and check whether the JVM has ended."""
        assert self._jobs is not None
        while not self._is_stopping.wait(_LOOK_EVERY_S):
            self._jobs.drop_abandoned()
            if not is_there(self._spark.spark):
                self.has_lost_spark = True
                self._health.note_loss("the JVM of Spark's driver has ended")
                self._on_spark_lost()
                return

    def _open_session(self, config: RunnerConfig, pool: str) -> SessionHandle:
        """See ``jobs.OpenSession``."""
        try:
            with self._lock:
                if self._spark.has_ended():
                    _LOGGER.warning("the Spark application has ended: another one is started")
                    forget_ended(self._spark.program)
                    self._spark = open_session(self._spark_config)
                    self._spark_ui_url = self._spark.ui_url()
            session = open_session(config)
        except RunnerError:
            raise
        except Exception as error:  # of Py4J, whose message lacks the cause
            raise LostSparkError(
                f"the job server's Spark does not answer: {message_of(error)}",
                "If its JVM has ended, start the job server again.",
            ) from error
        session.pool = pool
        return session
