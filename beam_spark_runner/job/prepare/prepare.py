"""Prepares a job from a pipeline and its options, and runs nothing. START READING HERE."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions
from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.core.errors import OptionsError, UnsupportedFeatureError
from beam_spark_runner.harness.main_classes import CodedClasses, coded_main_classes
from beam_spark_runner.harness.main_names import coded_main_names
from beam_spark_runner.harness.program_folders import import_path, working_folder
from beam_spark_runner.harness.remote.settings import HarnessSettings
from beam_spark_runner.job.prepare.compile import compile_graph
from beam_spark_runner.job.prepare.environment_overrides import (
    override_environments,
    read_overrides,
)
from beam_spark_runner.job.prepare.java_processes import run_java_in_processes
from beam_spark_runner.job.prepare.loopback_environments import has_loopback, with_pool
from beam_spark_runner.job.prepare.packages import identify_packages
from beam_spark_runner.job.prepare.packing import pack_combiners
from beam_spark_runner.job.prepare.recoverable import check_can_be_recovered
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.plan.model import Plan
from beam_spark_runner.portable.artifacts import Artifact
from beam_spark_runner.portable.environment_facts import has_remote_code
from beam_spark_runner.portable.pickled import words_of_pickles
from beam_spark_runner.portable.pipeline import from_proto
from beam_spark_runner.portable.placing import keep_code_together
from beam_spark_runner.portable.sdk_options import options_json


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedJob:
    """A compiled pipeline, which can run on any Spark.

    Attributes:
        job_id: The id of the run, in the names of temporary folders and as the tag of Spark jobs.
        plan: The compiled pipeline.
        config: The runner's own options, validated.
        options_json: All pipeline options, in the JSON that SDK harnesses read.
        harnesses: The settings of SDK harnesses. None: all user code runs in the Python workers.
        packages: The sets of files that SDK harnesses need, by their digests.
        working_folder: The working directory of the program that built the pipeline. None: that
            was another process.
        import_path: Where that program finds modules, in addition to its installed packages.
        main_classes: The classes of the main module of the program that built the pipeline; empty
            if that was another process.
        was_built_here: Whether the pipeline was built in this process. Only then may this process
            unpickle code of the pipeline.
    """

    job_id: str
    plan: Plan
    config: RunnerConfig = field(default_factory=RunnerConfig)
    options_json: str = "{}"
    harnesses: HarnessSettings | None = None
    packages: Mapping[str, tuple[Artifact, ...]] = field(default_factory=dict)
    working_folder: str | None = None
    import_path: tuple[str, ...] = ()
    main_classes: CodedClasses = field(default_factory=dict)
    was_built_here: bool = True

    @property
    def can_be_continued(self) -> bool:
        """Whether a later start may continue the job from what it has stored."""
        config = self.config
        place = config.checkpoint_dir if self.plan.is_streaming else config.job_folder
        return place is not None

    def for_start(self, number: int) -> "PreparedJob":
        """Return the job for another start, of which tasks and harnesses know nothing yet.

        Nor has any process: a killed start of a copy of the job may have left its folder.

        Args:
            number: The number of the start; that of the first one is 1.
        """
        if number == 1:
            return self
        job_id = f"{self.job_id}-{number}-{secrets.token_hex(3)}"
        harnesses = self.harnesses
        if harnesses is not None:
            harnesses = replace(harnesses, job_id=job_id)
        return replace(self, job_id=job_id, harnesses=harnesses)

    def check_streams(self, purpose: str) -> None:
        """Raise an UnsupportedFeatureError if the pipeline runs in batch.

        Args:
            purpose: The beginning of the error's text: what only a streaming pipeline supports.
        """
        check_streams(purpose, self.job_id, is_streaming=self.plan.is_streaming)


def check_streams(purpose: str, job_id: str, *, is_streaming: bool) -> None:
    """See ``PreparedJob.check_streams``."""
    if not is_streaming:
        raise UnsupportedFeatureError(f"{purpose} a pipeline that runs in batch", job_id)


def prepare(
    pipeline: beam_runner_api_pb2.Pipeline,
    options: PipelineOptions,
    config: RunnerConfig,
    serve_loopback: Callable[[str], str],
    *,
    job_id: str,
    all_options: Mapping[str, object] | None = None,
    main_classes: CodedClasses | None = None,
) -> PreparedJob:
    """Choose where user code runs, and compile a pipeline.

    Args:
        pipeline: The proto as an SDK made it.
        options: The options of the pipeline.
        config: The runner's own options among them, validated.
        serve_loopback: Is called if there are LOOPBACK environments, with
            ``PreparedJob.options_json``, and returns the address of the worker pool that runs them.
        job_id: See ``PreparedJob``.
        all_options: All options by name, as the client of a job server sent them, also those that
            only its SDK knows. None: the pipeline was built in this process.
        main_classes: See ``PreparedJob``. None: those of this process, if it has built the
            pipeline.

    Raises:
        OptionsError, PipelineError: The options or the pipeline are invalid or not supported.
    """
    was_built_here = all_options is None
    if was_built_here:
        pipeline = pack_combiners(pipeline)
    graph = from_proto(pipeline, expands_reshuffles=config.expands_reshuffles)
    graph = override_environments(graph, read_overrides(config.environment_overrides))
    graph = run_java_in_processes(graph, config.java_class_path, config.docker_executable)
    # Code of two clients never runs in the same process.
    graph = keep_code_together(graph, apart=not was_built_here)
    graph, packages = identify_packages(graph)
    if all_options is None:
        all_options = options.get_all_options(drop_default=True)
    for_sdks = _options_json(config, all_options)
    if has_loopback(graph):
        graph = with_pool(graph, serve_loopback(for_sdks))
    plan = compile_graph(
        graph,
        allow_non_deterministic_key_coders=config.allow_non_deterministic_key_coders,
        drains=config.drains,
        is_streaming=config.is_streaming,
        has_checkpoints=bool(config.checkpoint_dir or config.savepoint_path),
        separates_levels=config.recovers_batch,
        is_apart=not was_built_here,
    )
    if not plan.is_streaming:
        if config.autoscale is not None:
            raise OptionsError(
                "autoscale", "the pipeline runs in batch, where --max_parallelism is the limit"
            )
        if config.recovers_batch:
            check_can_be_recovered(config)
        else:
            _check_that_nothing_continues(config)
    if main_classes is None:
        setup = options.view_as(SetupOptions)
        main_classes = _main_classes(pipeline, setup) if was_built_here else {}
    return PreparedJob(
        job_id=job_id,
        plan=plan,
        config=config,
        options_json=for_sdks,
        harnesses=_harness_settings(job_id, plan, config, for_sdks, main_classes),
        packages=packages,
        # Taken now: the program may change its working directory.
        working_folder=working_folder() if was_built_here else None,
        import_path=tuple(import_path()) if was_built_here else (),
        main_classes=main_classes,
        was_built_here=was_built_here,
    )


def _main_classes(pipeline: beam_runner_api_pb2.Pipeline, options: SetupOptions) -> CodedClasses:
    if not options.pickle_library.startswith("dill"):
        return coded_main_classes()
    if options.save_main_session:
        return {}  # it has all names
    return coded_main_names(words_of_pickles(pipeline))


def _check_that_nothing_continues(config: RunnerConfig) -> None:
    """Check that a pipeline that runs in batch is not to continue from stored data."""
    continuing_options = {
        "savepoint_path": config.savepoint_path,
        "restart": config.restart == "resume",
    }
    for option, is_set in continuing_options.items():
        if is_set:
            raise OptionsError(
                option,
                "the pipeline runs in batch, and would not continue from stored data; with "
                "--batch_job_recovery and --checkpoint_dir it does",
            )


def _options_json(config: RunnerConfig, all_options: Mapping[str, object]) -> str:
    sent = {**all_options, "max_cache_memory_usage_mb": config.max_cache_memory_usage_mb}
    sent.pop("runner", None)
    return options_json(sent)


def _harness_settings(
    job_id: str, plan: Plan, config: RunnerConfig, for_sdks: str, main_classes: CodedClasses
) -> HarnessSettings | None:
    if not has_remote_code(plan.graph):
        return None
    return HarnessSettings(
        job_id=job_id,
        options_json=for_sdks,
        main_classes=main_classes,
        start_timeout_s=config.environment_start_timeout_s,
        cache_s=config.environment_cache_s,
        parallelism=config.sdk_worker_parallelism,
        docker_executable=config.docker_executable,
        step_chunks=config.step_chunks,
        stuck_s=config.stuck_s(is_streaming=plan.is_streaming),
    )
