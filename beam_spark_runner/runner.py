"""``SparkPortableRunner``, the class that ``--runner=SparkPortableRunner`` selects."""

import contextlib
import html
import logging
import shutil
import sys
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import apache_beam as beam
from apache_beam.metrics.metric import MetricResults
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_job_api_pb2, beam_runner_api_pb2, metrics_pb2
from apache_beam.runners.runner import PipelineResult, PipelineRunner
from apache_beam.transforms import environments

from beam_spark_runner.core.errors import SAVEPOINT_ARGUMENT, BundleFailedError, OptionsError
from beam_spark_runner.core.tables import TableRead
from beam_spark_runner.harness.beam.job_options import JobOptions, use_options
from beam_spark_runner.harness.beam.recording import (
    play_what_was_recorded,
    use_runnable_recorders,
)
from beam_spark_runner.job.environments import (
    default_environment,
)
from beam_spark_runner.job.identity import folder_of, new_job_id
from beam_spark_runner.job.interrupts import FirstInterrupt
from beam_spark_runner.job.job import Job
from beam_spark_runner.job.lines import end_line, line_for
from beam_spark_runner.job.loopback import LoopbackPool, serve_loopback
from beam_spark_runner.job.opening import open_shown
from beam_spark_runner.job.packages import asks_for_packages, collect_packages
from beam_spark_runner.job.prepare import prepare
from beam_spark_runner.job.program_start import script_name
from beam_spark_runner.job.progress_line import Line
from beam_spark_runner.job.sigterm import FirstSigterm, sigterm_raises
from beam_spark_runner.job.stream_watch import StepWatermarks
from beam_spark_runner.job.submission import Submitter
from beam_spark_runner.job.users_errors import as_users_own
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.options.metrics import MetricsAddress
from beam_spark_runner.options.spelling import warn_of_misspelled
from beam_spark_runner.options.values import required_folder
from beam_spark_runner.plan.explain import explain
from beam_spark_runner.plan.picture import picture
from beam_spark_runner.portable.monitoring import to_metric_results
from beam_spark_runner.spark.driver.table_frames import schema_of
from beam_spark_runner.spark.session.handle import SessionHandle
from beam_spark_runner.spark.session.open_session import open_session, stop_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGGER = logging.getLogger(__name__)


class SparkPortableRunner(PipelineRunner):  # type: ignore[misc]
    """Runs Beam pipelines on Spark, from the portable proto.

    The pipeline runs in this program, or on a job server if --job_endpoint is set.

    Args:
        spark: The session to use. It is not stopped, and its settings are restored at the end.
            None: the active session, or the one that the options name, or a new local one, which
            later pipelines of this process use, too; see ``stop_session``.
    """

    def __init__(self, spark: "SparkSession | None" = None) -> None:
        super().__init__()
        self._spark = spark

    def default_environment(self, options: PipelineOptions) -> environments.Environment:
        """Return the environment of --environment_type; by default, the Python workers.

        Packages and files that the options name are built or downloaded here.

        Raises:
            OptionsError: An option is invalid.
            StagingError: A package cannot be built or downloaded.
        """
        kind = RunnerConfig.from_options(options).environment
        artifacts: Sequence[Any] = ()
        if kind in ("process", "docker", "external") and asks_for_packages(options):
            folder = tempfile.mkdtemp(prefix="beam-packages-")
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            artifacts = collect_packages(options, Path(folder))
        return default_environment(kind, options, artifacts)

    def run_pipeline(self, pipeline: beam.Pipeline, options: PipelineOptions) -> PipelineResult:
        """See ``run_portable_pipeline``. Steps of Interactive Beam's recordings are replaced."""
        use_runnable_recorders(pipeline)
        play_what_was_recorded(pipeline, is_interactive=_is_called_by_interactive_beam())
        return super().run_pipeline(pipeline, options)

    def run_portable_pipeline(
        self, pipeline: beam_runner_api_pb2.Pipeline, options: PipelineOptions
    ) -> PipelineResult:
        """Compile and start a pipeline.

        Returns:
            A ``SparkPipelineResult``; with --job_endpoint a ``SubmittedPipelineResult``.

        Raises:
            OptionsError, PipelineError: The options or the pipeline are invalid; nothing has run.
            SparkSetupError: There is no usable Spark.
        """
        config = RunnerConfig.from_options(options)
        warn_of_misspelled(options)
        if config.job_endpoint is not None:
            return Submitter(config).run_portable_pipeline(pipeline, options)
        closing = contextlib.ExitStack()
        line = line_for(config.progress, may_use_cell=not _is_called_by_interactive_beam())
        interrupt = FirstInterrupt(line)
        with sigterm_raises(), interrupt.raises():
            try:
                return self._start(pipeline, options, config, closing, line, interrupt)
            except BaseException as error:
                closing.close()
                end_line(line, error)
                raise

    def schema_of_table(self, read: TableRead, options: PipelineOptions) -> str | None:
        """Look up the schema of the rows of a ``ReadFromSpark``, when the transform is applied.

        A Spark that is started for this runs the pipeline, too.

        Returns:
            The schema in Spark's JSON. None: a job server will read the table.

        Raises:
            TableError: Spark cannot read the table.
        """
        config = RunnerConfig.from_options(options)
        if config.job_endpoint is not None:
            return None
        with open_session(config, self._spark) as session:
            return schema_of(read, session)

    @staticmethod
    def stop_session() -> bool:
        """Stop the Spark that pipelines of this process have started, and free its memory.

        Otherwise it waits for the next pipeline, until this process ends or
        ``--spark_session_idle_timeout`` is over. Sessions of the program's own are left alone.

        Returns:
            Whether there was one.

        Raises:
            SparkSetupError: Pipelines run in it.
        """
        return stop_session()

    def _open(
        self, config: RunnerConfig, closing: contextlib.ExitStack, line: Line | None
    ) -> SessionHandle:
        session = open_shown(config, self._spark, line)
        closing.callback(session.close)
        return session

    def _start(
        self,
        pipeline: beam_runner_api_pb2.Pipeline,
        options: PipelineOptions,
        config: RunnerConfig,
        closing: contextlib.ExitStack,
        line: Line | None,
        interrupt: FirstInterrupt,
    ) -> "SparkPipelineResult":
        """Prepare and start the job, which closes ``closing`` at its end."""
        is_notebook = _is_called_by_interactive_beam()
        session: SessionHandle | None = None
        loopback: LoopbackPool | None = None

        def start_loopback(pipeline: beam_runner_api_pb2.Pipeline, options_json: str) -> None:
            nonlocal session, loopback
            # Spark before gRPC: the JVM is started by a fork, after which gRPC restarts its
            # threads in the child, which then sometimes crashes.
            session = self._open(config, closing, line)
            if not session.is_local:
                raise OptionsError(
                    "environment_type",
                    "LOOPBACK runs user code in this process, which executors of a cluster cannot "
                    "reach; leave it out, or use PROCESS",
                )
            loopback = serve_loopback(pipeline, config.max_cache_memory_usage_mb << 20)
            closing.callback(loopback.stop)
            use_options(JobOptions(options_json))  # steps that read value providers run here

        if line is not None:
            line.show(lambda: ["preparing the pipeline"])
        prepared = prepare(pipeline, options, config, start_loopback, job_id=new_job_id())
        if config.show_plan:
            print(explain(prepared.plan))
        session = session or self._open(config, closing, line)
        job = Job(
            prepared,
            session,
            folder=folder_of(prepared.job_id, config, session),
            close_session=closing.close,
            line=line,
        )
        metrics_url = None
        if config.metrics is not None:
            metrics_url = _serve_metrics(
                config.metrics, config.job_name or script_name(), job, closing
            )
        if loopback is not None:
            loopback.keep_lines(job.messages)
        try:
            job.start()
            result = SparkPipelineResult(
                job,
                interrupt,
                metrics_url,
                name=config.job_name or script_name(),
                ui_url=session.ui_url(),
            )
        except (KeyboardInterrupt, SystemExit):
            job.cancel()
            raise
        # A pipeline that records unbounded sources goes on running, while another one plays the
        # recording.
        if is_notebook and (job.plays_test_stream or not prepared.plan.streams):
            result.wait_until_finish()
        return result


def _serve_metrics(
    address: MetricsAddress, name: str, job: Job, closing: contextlib.ExitStack
) -> str:
    """Serve the metrics of a job until it ends; return the URL."""
    # Imported here: the import takes a tenth of a second, and most programs serve no metrics.
    from beam_spark_runner.job.metrics_port import MetricsPort
    from beam_spark_runner.job.prometheus import JobMetrics

    port = MetricsPort(address, lambda: [JobMetrics(name, job)])
    closing.callback(port.close)
    return port.url


def _is_called_by_interactive_beam() -> bool:
    """Whether InteractiveRunner runs the pipeline: it assumes that ``run`` blocks until the end."""
    if _INTERACTIVE not in sys.modules:
        return False
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == _INTERACTIVE:
            return True
        frame = frame.f_back
    return False


_INTERACTIVE = "apache_beam.runners.interactive.interactive_runner"


class SparkPipelineResult(PipelineResult):  # type: ignore[misc]
    """A pipeline that runs, or has run.

    Attributes:
        metrics_url: The URL of its metrics for Prometheus while it runs (``--metrics_port``).
            None: they are not served.
        spark_ui_url: The URL of Spark's own page. None: Spark has none, or it is not known.
    """

    def __init__(
        self,
        job: Job,
        interrupt: FirstInterrupt,
        metrics_url: str | None = None,
        *,
        name: str = "",
        ui_url: str | None = None,
    ) -> None:
        super().__init__(job.state)
        self._job, self._interrupt = job, interrupt
        self._first_sigterm = FirstSigterm(job.drain) if job.drains_on_sigterm else None
        self.metrics_url = metrics_url
        self.spark_ui_url = ui_url
        self._name = name

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
        the program has no handler of its own for it. A second Ctrl-C ends the program at once.
        With --drain_on_sigterm, the first SIGTERM drains a streaming pipeline instead.

        Raises:
            RunnerError: The pipeline failed. The error's class and text are the reason. If user
                code raised, the error is of that exception's class, too.
        """
        with sigterm_raises(self._first_sigterm), self._interrupt.raises():
            try:
                ended = self._job.wait(None if duration is None else duration / 1000)
            except (KeyboardInterrupt, SystemExit):
                self._job.cancel()
                raise
        if ended and self._job.error is not None:
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
        return self._job.save(required_folder(SAVEPOINT_ARGUMENT, path))

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
        """Return HTML for notebooks: the state, and a diagram of the plan."""
        return f"<p>{html.escape(self.state)}</p>{picture(self._job.plan)}"

    def monitoring_infos(self) -> list[metrics_pb2.MonitoringInfo]:
        """Return the committed metrics in the form of Beam's Job API, labelled by transform id."""
        return [metrics_pb2.MonitoringInfo.FromString(each) for each in self._job.tally.committed]

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
