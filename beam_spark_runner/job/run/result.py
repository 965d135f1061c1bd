"""The result of a pipeline that runs in this program."""

import html

from apache_beam.metrics.metric import MetricResults
from apache_beam.portability.api import beam_job_api_pb2, metrics_pb2
from apache_beam.runners.runner import PipelineResult
from typing_extensions import override

from beam_spark_runner.core.errors import SAVEPOINT_ARGUMENT, BundleFailedError
from beam_spark_runner.job.run.interrupts import FirstInterrupt
from beam_spark_runner.job.run.job import Job
from beam_spark_runner.job.run.sigterm import FirstSigterm, sigterm_raises
from beam_spark_runner.job.run.users_errors import as_users_own
from beam_spark_runner.job.watching.stream_watch import StepWatermarks
from beam_spark_runner.options.values import required_folder
from beam_spark_runner.plan.picture import picture
from beam_spark_runner.portable.monitoring import to_metric_results


class SparkPipelineResult(PipelineResult):  # type: ignore[misc]
    """A pipeline that runs, or has run.

    Attributes:
        metrics_url: The URL of its metrics for Prometheus while it runs (``--metrics_port``).
            None: they are not served.
        page_url: The URL of its page, with the token that opens it (``--job_page_port``). None: it
            has none.
        spark_ui_url: The URL of the Spark UI. None: Spark has none, or it is not known.
    """

    def __init__(
        self,
        job: Job,
        interrupt: FirstInterrupt,
        metrics_url: str | None = None,
        *,
        name: str = "",
        ui_url: str | None = None,
        page_url: str | None = None,
    ) -> None:
        super().__init__(job.state)
        self._job, self._interrupt = job, interrupt
        self._first_sigterm = FirstSigterm(job.drain) if job.drains_on_sigterm else None
        self.metrics_url = metrics_url
        self.spark_ui_url = ui_url
        self.page_url = page_url
        self._name = name

    @override
    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}: {self.state}>"

    @property
    def job_id(self) -> str:
        """The id of this run, in the names of temporary folders and as the tag of Spark jobs."""
        return self._job.job_id

    @property
    def state(self) -> str:
        """One of ``PipelineState``; does not wait."""
        return self._job.state

    def wait_until_finish(self, duration: int | None = None) -> str:
        """Wait for the end, or for ``duration`` milliseconds.

        Ctrl-C cancels the pipeline and its Spark jobs, and so does SIGTERM where
        the program has no other handler for it. A second Ctrl-C ends the program at once.
        With --drain_on_sigterm, the first SIGTERM drains a streaming pipeline instead.

        Raises:
            RunnerError: The pipeline failed. The error's class and text are the reason. If user
                code raised, the error is of that exception's class, too.
        """
        with sigterm_raises(self._first_sigterm), self._interrupt.raises():
            try:
                has_ended = self._job.wait(None if duration is None else duration / 1000)
            except (KeyboardInterrupt, SystemExit):
                self._job.cancel()
                raise
        if has_ended and self._job.error is not None:
            # Without the frames of the job's thread and Spark's stack traces, which are in the
            # debug log and in ``__context__``.
            error = self._job.error
            if isinstance(error, BundleFailedError):
                error = as_users_own(error)
            raise error.with_traceback(None) from None
        return self.state

    def cancel(self) -> str:
        """Cancel the pipeline and its Spark jobs; return once they have ended."""
        self._job.cancel()
        return self.state

    def drain(self) -> str:
        """Let the sources of a streaming pipeline end, and with them the pipeline. Does not wait.

        Elements that sources have already emitted are processed, timers fire, and windows close. A
        restriction of a splittable DoFn is truncated by its provider: by default, nothing remains
        of an unbounded one. The last state is DRAINED.

        Returns:
            The state, which may still be RUNNING.

        Raises:
            UnsupportedFeatureError: the pipeline runs in batch.
        """
        self._job.drain()
        return self.state

    def savepoint(self, path: str) -> int:
        """Copy the last commit of a streaming pipeline to a folder, while the pipeline runs on.

        Another run with ``--savepoint_path=path`` begins there. The runner never deletes it.

        Args:
            path: A folder, or the URL of one in an object store or HDFS; made if it is missing.

        Returns:
            The number of the epoch that was copied.

        Raises:
            UnsupportedFeatureError: the pipeline runs in batch.
            OptionsError: the path is empty, or a URL that is not supported.
            RunnerError: No epoch has been committed yet, the folder has a savepoint or a
                checkpoint already, or it cannot be written.
        """
        return self._job.make_savepoint(required_folder(SAVEPOINT_ARGUMENT, path))

    def watermarks(self) -> dict[str, StepWatermarks]:
        """Return the input and output watermarks of each step of a streaming pipeline.

        They are those of the last committed epoch; ``MAX_TIMESTAMP`` once a step has finished.

        Returns:
            Watermarks by the full name of the step. Empty before this run's first commit.

        Raises:
            UnsupportedFeatureError: the pipeline runs in batch.
        """
        return self._job.watermarks()

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: the state, a link to the page, and a diagram of the plan."""
        link = ""
        if self.page_url is not None:
            link = f', <a href="{html.escape(self.page_url)}" target="_blank">job page</a>'
        return f"<p>{html.escape(self.state)}{link}</p>{picture(self._job.plan)}"

    def monitoring_infos(self) -> list[metrics_pb2.MonitoringInfo]:
        """Return the committed metrics in the form of Beam's Job API, labelled by transform id."""
        return [metrics_pb2.MonitoringInfo.FromString(info) for info in self._job.tally.committed]

    def metrics(self) -> MetricResults:
        """Return attempted and committed metrics, also after the job has failed.

        While the pipeline runs, attempted metrics include those that its tasks have reported so
        far.
        """
        return to_metric_results(
            self._job.tally.committed, self._job.attempted(), step_names=self._job.step_names
        )

    def messages(self) -> tuple[beam_job_api_pb2.JobMessage, ...]:
        """Return the latest 10,000 messages: log lines of user code, and why the job failed.

        They have the form of Beam's Job API.
        """
        return self._job.messages.log.events()
