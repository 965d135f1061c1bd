"""``SparkPortableRunner``, the class that ``--runner=SparkPortableRunner`` selects."""

import contextlib
import logging
import shutil
import sys
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.runner import PipelineResult, PipelineRunner
from apache_beam.transforms import environments
from typing_extensions import override

from beam_spark_runner.core.errors import OptionsError, TableError
from beam_spark_runner.core.table_steps import TableRead
from beam_spark_runner.driving.session import Session
from beam_spark_runner.harness.beam.job_options import JobOptions, use_options
from beam_spark_runner.harness.beam.profiling import Profiling
from beam_spark_runner.harness.beam.recording import (
    play_what_was_recorded,
    use_runnable_recorders,
)
from beam_spark_runner.job.client.submission import Submitter
from beam_spark_runner.job.files.identity import folder_of, new_job_id
from beam_spark_runner.job.prepare.default_environment import (
    default_environment,
)
from beam_spark_runner.job.prepare.kept_packages import keep_packages
from beam_spark_runner.job.prepare.packages import asks_for_packages, collect_packages
from beam_spark_runner.job.prepare.prepare import prepare
from beam_spark_runner.job.run.interrupts import FirstInterrupt
from beam_spark_runner.job.run.job import Job
from beam_spark_runner.job.run.lineage import report_lineage
from beam_spark_runner.job.run.program_recovery import ProgramRecovery
from beam_spark_runner.job.run.result import SparkPipelineResult
from beam_spark_runner.job.run.session_opening import open_and_show
from beam_spark_runner.job.run.sigterm import sigterm_raises
from beam_spark_runner.job.watching.lines import end_line, line_for
from beam_spark_runner.job.watching.program_start import script_name
from beam_spark_runner.job.watching.progress_line import Line, LoggedLine
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.options.environment import environment_kind
from beam_spark_runner.options.metrics_address import MetricsAddress
from beam_spark_runner.options.read_options import EnvironmentOptions
from beam_spark_runner.options.spelling import warn_of_misspelled
from beam_spark_runner.options.values import IN_PROCESS
from beam_spark_runner.plan.explain import explain
from beam_spark_runner.spark.driver.table_frames import schema_of
from beam_spark_runner.spark.session.open_session import open_session
from beam_spark_runner.spark.session.own_spark import stop_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from beam_spark_runner.job.run.loopback import LoopbackPool

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
        given = options.view_as(EnvironmentOptions)
        kind = environment_kind(given)
        artifacts: Sequence[Any] = ()
        if kind in ("process", "docker", "external") and asks_for_packages(options):
            RunnerConfig.from_options(options)  # an invalid option is known before the downloads
            folder = tempfile.mkdtemp(prefix="beam-packages-")
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            artifacts = collect_packages(options, Path(folder))
        return default_environment(kind, given, artifacts)

    @override
    def run_pipeline(self, pipeline: beam.Pipeline, options: PipelineOptions) -> PipelineResult:
        """Steps of Interactive Beam's recordings are replaced."""
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
        if config.spark_master_url == IN_PROCESS:
            raise TableError(
                f"--spark_master_url={IN_PROCESS} has no Spark that could read it", str(read)
            )
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
    ) -> Session:
        session = open_and_show(config, self._spark, line)
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
        session: Session | None = None
        loopback: LoopbackPool | None = None

        def start_loopback(options_json: str) -> str:
            from beam_spark_runner.job.run.loopback import LoopbackPool

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
            own = JobOptions(options_json)
            cache_bytes = config.max_cache_memory_usage_mb << 20
            loopback = LoopbackPool(cache_bytes, Profiling(own))
            closing.callback(loopback.stop)
            use_options(own)  # steps that read value providers run here
            return loopback.url

        if line is not None:
            line.show(lambda: ["preparing the pipeline"])
        prepared = prepare(pipeline, options, config, start_loopback, job_id=new_job_id())
        if config.show_plan:
            print(explain(prepared.plan))
        session = session or self._open(config, closing, line)
        recovery: ProgramRecovery | None = None
        if config.recovers_batch and not prepared.plan.is_streaming:
            recovery = ProgramRecovery(config)
            stored = recovery.submit(
                pipeline,
                options,
                prepared,
                session,
                lambda: Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="beam-"))),
            )
            if stored is not None:
                prepared = prepare(
                    stored.pipeline,
                    options,
                    config,
                    lambda options_json: loopback.url if loopback is not None else "",
                    job_id=prepared.job_id,
                    main_classes=stored.main_classes,
                )
        if prepared.packages:
            folder = closing.enter_context(tempfile.TemporaryDirectory(prefix="beam-packages-"))
            kept = keep_packages(prepared.packages, Path(folder))
            prepared = replace(prepared, packages=kept)
        job = Job(
            prepared,
            session,
            recovery=recovery,
            folder=folder_of(prepared.job_id, config, session),
            close_session=closing.close,
            line=line,
        )
        metrics_url = None
        if config.metrics is not None:
            metrics_url = _serve_metrics(
                config.metrics, config.job_name or script_name(), job, closing
            )
        page_url = None
        if config.page is not None:
            page_url = _show_in_page(config, job, session.ui_url(), line)
        if loopback is not None:
            loopback.keep_lines(job.messages)
        try:
            job.start()
            if config.lineage_url is not None:
                report_lineage(job, config.job_name or script_name(), config.lineage_url)
            result = SparkPipelineResult(
                job,
                interrupt,
                metrics_url,
                name=config.job_name or script_name(),
                ui_url=session.ui_url(),
                page_url=page_url,
            )
        except (KeyboardInterrupt, SystemExit):
            job.cancel()
            raise
        # A pipeline that records unbounded sources keeps running, while another one plays the
        # recording.
        if is_notebook and (job.plays_test_stream or not prepared.plan.is_streaming):
            result.wait_until_finish()
        return result


def _serve_metrics(
    address: MetricsAddress, name: str, job: Job, closing: contextlib.ExitStack
) -> str:
    """Serve the metrics of a job until it ends; return the URL."""
    # Imported here: the import takes a tenth of a second, and most programs serve no metrics.
    from beam_spark_runner.job.export.metrics_port import MetricsPort
    from beam_spark_runner.job.export.prometheus import JobMetrics

    port = MetricsPort(address, lambda: [JobMetrics(name, job)])
    closing.callback(port.close)
    return port.url


def _show_in_page(
    config: RunnerConfig, job: Job, ui_url: str | None, line: Line | None
) -> str | None:
    """Show a job in the page of this program, and say where that is; return its URL."""
    assert config.page is not None
    # Imported here: it needs an extra, and most programs have no page.
    from beam_spark_runner.job.page.program_page import show_in_page

    url = show_in_page(config.page, job, config.job_name or script_name(), ui_url)
    if line is None or isinstance(line, LoggedLine):
        print(f"job page: {url}", file=sys.stderr)  # logging may show nothing
    else:
        line.say(f"job page: {url}")
    return url


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
