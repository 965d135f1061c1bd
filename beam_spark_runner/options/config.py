"""The options as one validated value, which all other code uses."""

import argparse
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner.core.backchannel import BackchannelKind
from beam_spark_runner.core.delivery_guarantee import DeliveryGuarantee, delivery_guarantee
from beam_spark_runner.core.environments import EnvironmentKind, ExecutorEnvironment
from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.core.flight_limits import FLIGHT_LIMITS, FlightLimits
from beam_spark_runner.core.step_chunks import StepChunks
from beam_spark_runner.core.store_address import StateStoreAddress
from beam_spark_runner.options.declared import (
    DEFAULT_BATCH_INTERVAL_MS,
    DEFAULT_MIN_PAUSE_S,
    DEFAULT_PREVIOUS_WORKER_S,
    DEFAULT_ROUND_BUDGET_S,
    DEFAULT_SESSION_IDLE_S,
    DEFAULT_SINGLE_TASK_BUDGET_S,
    DEFAULT_STUCK_S,
    DEFAULT_TIMER_BATCH,
)
from beam_spark_runner.options.environment import (
    cache_s,
    environment_kind,
    environment_overrides,
    sdk_worker_parallelism,
)
from beam_spark_runner.options.lineage_options import lineage_url
from beam_spark_runner.options.metrics_address import MetricsAddress, metrics_of_program
from beam_spark_runner.options.page_address import PageAddress, page_of_program
from beam_spark_runner.options.partition_options import PartitionLimits, partition_options
from beam_spark_runner.options.profiling_options import check_profiling
from beam_spark_runner.options.read_options import given_without_defaults, read_options
from beam_spark_runner.options.sample_redaction import sample_redaction
from beam_spark_runner.options.savepoint_schedule import SavepointSchedule, savepoint_schedule
from beam_spark_runner.options.server_access import ClientAccess, check_client_access
from beam_spark_runner.options.state_store_options import (
    DEFAULT_STORE_CACHE_MB,
    cache_bytes,
    in_flight_limits,
    leaves_requests,
    state_store,
)
from beam_spark_runner.options.store_settings import store_settings
from beam_spark_runner.options.values import (
    MAX_BYTES,
    archive_folder,
    boolean,
    checkpoint_folder,
    log_level,
    master,
    milliseconds,
    one_of,
    positive,
    positive_seconds,
    renamed_steps,
    seconds,
    size,
    spark_conf,
)

_LOGGER = logging.getLogger(__name__)

Progress = Literal["auto", "on", "off"]
Restart = Literal["auto", "resume", "fresh"]

DEFAULT_CACHE_MB = 100
_MAX_MB = MAX_BYTES >> 20
_MAX_TIMERS = 1_000_000
DEFAULT_START_TIMEOUT_S = 120.0
DEFAULT_DOCKER = "docker"

_INSTALL_BEAM = (
    "workers run the installed Apache Beam; install the one that you need on all machines, and "
    "leave the option out"
)

_OTHER_RUNNER = "belongs to Beam's SparkRunner, which starts a Java job server; leave it out"

_REFUSED: Mapping[str, str] = {
    "output_executable_path": "this runner writes no jar; leave it out",
    "prebuild_sdk_container_engine": "this runner builds no images; name one by "
    "--environment_type=DOCKER --environment_config=IMAGE",
}
_REFUSED_OF_SPARK = {
    "spark_submit_uber_jar": _OTHER_RUNNER,
    "spark_rest_url": _OTHER_RUNNER,
    "spark_job_server_jar": _OTHER_RUNNER,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerConfig:
    """Every option that this runner supports, validated. Made once, by ``from_options``."""

    job_endpoint: str | None = None  # HOST:PORT of the job server. None: runs in this process
    job_server_access: ClientAccess = field(default_factory=ClientAccess)
    spark_master_url: str | None = None  # None: not given. sc:// is Spark Connect
    spark_conf: tuple[tuple[str, str], ...] = ()  # each key once, in the order given
    session_idle_s: float = DEFAULT_SESSION_IDLE_S  # --spark_session_idle_timeout
    class_archive: str | None = None  # --spark_class_archive: a folder. None: off
    parallelism: int | None = None  # --parallelism: partitions of an exchange. None: derived
    max_parallelism: int | None = None  # --max_parallelism: most partitions. None: the default
    autoscale: PartitionLimits | None = None  # of a streaming pipeline. None: a fixed number
    allow_non_deterministic_key_coders: bool = False
    expands_reshuffles: bool = False  # --update_compatibility_version is before 2.65.0
    shared_storage: str | None = None  # --temp_location: any Beam URL, or a path
    max_cache_memory_usage_mb: int = DEFAULT_CACHE_MB  # of each worker, for side inputs
    environment: EnvironmentKind = "embedded"  # --environment_type: where user code runs
    environment_overrides: str = ""  # JSON: environments that replace others, by URN
    sdk_worker_parallelism: int = 1  # SDK harnesses for each Python worker
    executor_environment: ExecutorEnvironment = "auto"  # the packages of Python workers
    environment_cache_s: float = 0.0  # --environment_cache_millis. 0: 30 s
    environment_start_timeout_s: float = DEFAULT_START_TIMEOUT_S
    docker_executable: str = DEFAULT_DOCKER  # the program that starts containers
    java_class_path: str | None = None  # for processes in place of Java's containers
    step_chunks: StepChunks = "auto"
    sdf_round_budget_s: float = DEFAULT_ROUND_BUDGET_S  # 0: no rounds
    single_task_budget_s: float = DEFAULT_SINGLE_TASK_BUDGET_S  # 0: no such tasks
    group_memory_bytes: int | None = None  # a task's memory for large groups. None: the default
    # Bytes of one sort_partition, which reads the option itself when applied. None: its default.
    sort_partition_memory: int | None = None
    drains: bool = False  # --drain
    drains_on_sigterm: bool = False
    is_streaming: bool = False  # --streaming
    checkpoint_dir: str | None = None  # a folder, or its URL
    recovers_batch: bool = False  # --batch_job_recovery
    server_folder: str | None = None  # of one job, in the --jobs_dir of a job server
    snapshot_min_pause_s: float = DEFAULT_MIN_PAUSE_S  # --operator_coordinator_snapshot_min_pause
    previous_worker_recovery_timeout_s: float = DEFAULT_PREVIOUS_WORKER_S
    store_settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # for such URLs
    state_store: StateStoreAddress | None = None  # of a streaming pipeline
    state_store_cache_bytes: int = DEFAULT_STORE_CACHE_MB << 20  # --state_store_cache_mb
    in_flight: FlightLimits = FLIGHT_LIMITS  # --async_state_…
    leaves_requests: bool = False  # --unaligned_state_requests
    savepoint_path: str | None = None  # from which a streaming pipeline starts
    savepoint_schedule: SavepointSchedule | None = None  # --savepoint_every. None: makes none
    delivery_guarantee: DeliveryGuarantee = "exactly_once"  # of sinks
    renamed_steps: tuple[tuple[str, str], ...] = ()  # --transform_name_mapping
    restart: Restart | Literal["continue"] = "auto"  # "continue": a stream of a job server
    checkpoints_after_tasks_finish: bool = True  # of a streaming pipeline
    batch_interval_s: float = DEFAULT_BATCH_INTERVAL_MS / 1e3  # of its epochs
    # --unaligned_splittable_timers and --timer_fire_batch_size. None: all due timers fire
    user_timer_batch: int | None = None
    parallel_test_streams: bool = False  # several tasks in an epoch, on a local master, too
    sample_redaction: str | None = None  # MODULE:FUNCTION
    stuck_bundle_timeout_s: float | None = None  # 0: never. None: not given, see ``stuck_s``
    job_name: str | None = None
    show_plan: bool = False
    progress: Progress = "auto"
    backchannel: BackchannelKind = "auto"
    metrics: MetricsAddress | None = None  # address at which metrics are served. None: not served
    page: PageAddress | None = None  # address of the page for jobs. None: not served
    lineage_url: str | None = None  # of a server of OpenLineage. None: nothing is reported
    spark_metrics: bool = False  # of a streaming pipeline: also in Spark's metrics system

    @property
    def job_folder(self) -> str | None:
        """The folder or URL where what a batch pipeline has run is stored. None: nowhere."""
        return (self.server_folder or self.checkpoint_dir) if self.recovers_batch else None

    def stuck_s(self, *, is_streaming: bool) -> float:
        """Return the longest time that user code may make no progress. 0: no limit.

        Args:
            is_streaming: Whether the pipeline runs in epochs, which user code can block.
        """
        if self.stuck_bundle_timeout_s is None:
            return DEFAULT_STUCK_S if is_streaming else 0.0
        return self.stuck_bundle_timeout_s

    @classmethod
    def from_options(cls, options: PipelineOptions) -> "RunnerConfig":
        """Validate ``options`` and return them as one value.

        Raises:
            OptionsError: An option is wrong, conflicts with another, or is not supported.
        """
        values, explicit = read_options(options), given_without_defaults(options)
        _refuse_unsupported(values, explicit)
        _check_log_levels(values)
        parallelism, max_parallelism, autoscale = partition_options(values)
        environment = environment_kind(values)
        check_profiling(values, environment)
        job_endpoint = _job_endpoint(values.job_endpoint)
        return cls(
            job_endpoint=job_endpoint,
            job_server_access=_job_server_access(values, job_endpoint),
            allow_non_deterministic_key_coders=values.allow_non_deterministic_key_coders,
            expands_reshuffles=_expands_reshuffles(options, values),
            spark_master_url=master(explicit["spark_master_url"]),
            spark_conf=tuple(spark_conf(getattr(values, "spark_conf", None)).items()),
            session_idle_s=seconds(
                "spark_session_idle_timeout",
                getattr(values, "spark_session_idle_timeout", DEFAULT_SESSION_IDLE_S),
            ),
            class_archive=archive_folder(getattr(values, "spark_class_archive", None)),
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            autoscale=autoscale,
            shared_storage=values.temp_location or None,
            max_cache_memory_usage_mb=_cache_mb(explicit["max_cache_memory_usage_mb"]),
            environment=environment,
            environment_overrides=_environment_overrides(values, job_endpoint),
            sdk_worker_parallelism=sdk_worker_parallelism(values, environment),
            executor_environment=one_of(
                "executor_environment",
                getattr(values, "executor_environment", "auto"),
                ExecutorEnvironment,
            ),
            environment_cache_s=cache_s(values, environment),
            environment_start_timeout_s=_start_timeout_s(
                getattr(values, "environment_start_timeout", None)
            ),
            docker_executable=getattr(values, "docker_executable", None) or DEFAULT_DOCKER,
            java_class_path=getattr(values, "java_class_path", None) or None,
            step_chunks=one_of("step_chunks", getattr(values, "step_chunks", "auto"), StepChunks),
            sdf_round_budget_s=seconds(
                "sdf_round_budget", getattr(values, "sdf_round_budget", DEFAULT_ROUND_BUDGET_S)
            ),
            single_task_budget_s=seconds(
                "single_task_budget",
                getattr(values, "single_task_budget", DEFAULT_SINGLE_TASK_BUDGET_S),
            ),
            group_memory_bytes=positive(
                "group_memory_bytes", getattr(values, "group_memory_bytes", None), MAX_BYTES
            ),
            sort_partition_memory=size(
                "sort_partition_memory", getattr(values, "sort_partition_memory", None)
            ),
            drains=bool(getattr(values, "drain", False)),
            drains_on_sigterm=bool(getattr(values, "drain_on_sigterm", False)),
            is_streaming=bool(values.streaming),
            checkpoint_dir=checkpoint_folder(
                "checkpoint_dir", getattr(values, "checkpoint_dir", None)
            ),
            recovers_batch=bool(getattr(values, "batch_job_recovery", False)),
            snapshot_min_pause_s=positive_seconds(
                "operator_coordinator_snapshot_min_pause",
                getattr(values, "operator_coordinator_snapshot_min_pause", DEFAULT_MIN_PAUSE_S),
            ),
            previous_worker_recovery_timeout_s=seconds(
                "previous_worker_recovery_timeout",
                getattr(values, "previous_worker_recovery_timeout", DEFAULT_PREVIOUS_WORKER_S),
            ),
            store_settings=store_settings(values),
            state_store=state_store(
                getattr(values, "state_store", None),
                getattr(values, "state_store_password_file", None),
            ),
            state_store_cache_bytes=cache_bytes(values),
            in_flight=in_flight_limits(values),
            leaves_requests=leaves_requests(values),
            savepoint_path=checkpoint_folder(
                "savepoint_path", getattr(values, "savepoint_path", None)
            ),
            savepoint_schedule=savepoint_schedule(values),
            delivery_guarantee=delivery_guarantee(getattr(values, "delivery_guarantee", None)),
            batch_interval_s=milliseconds(
                "batch_interval_millis",
                getattr(values, "batch_interval_millis", DEFAULT_BATCH_INTERVAL_MS),
            ),
            user_timer_batch=_user_timer_batch(values),
            parallel_test_streams=bool(getattr(values, "parallel_test_streams", False)),
            checkpoints_after_tasks_finish=boolean(
                "checkpoints_after_tasks_finish",
                getattr(values, "checkpoints_after_tasks_finish", True),
            ),
            stuck_bundle_timeout_s=_stuck_s(getattr(values, "stuck_bundle_timeout", None)),
            renamed_steps=renamed_steps(values.transform_name_mapping),
            restart=one_of("restart", getattr(values, "restart", "auto"), Restart),
            job_name=values.job_name or None,
            show_plan=bool(getattr(values, "show_plan", False)),
            progress=one_of("progress", getattr(values, "progress", "auto"), Progress),
            backchannel=one_of(
                "backchannel", getattr(values, "backchannel", "auto"), BackchannelKind
            ),
            metrics=metrics_of_program(values, job_endpoint),
            page=page_of_program(values, job_endpoint),
            sample_redaction=sample_redaction(values, options),
            lineage_url=lineage_url(values, job_endpoint),
            spark_metrics=bool(getattr(values, "spark_metrics", False)),
        )


def _user_timer_batch(values: argparse.Namespace) -> int | None:
    value = getattr(values, "timer_fire_batch_size", None)
    batch = positive("timer_fire_batch_size", value, _MAX_TIMERS)
    if getattr(values, "unaligned_splittable_timers", False):
        return batch or DEFAULT_TIMER_BATCH
    if batch is not None:
        raise OptionsError(
            "timer_fire_batch_size", "has no effect unless --unaligned_splittable_timers is set"
        )
    return None


def _refuse_unsupported(values: argparse.Namespace, explicit: Mapping[str, Any]) -> None:
    for name, problem in _REFUSED.items():
        if getattr(values, name):
            raise OptionsError(name, problem)
    for name, problem in _REFUSED_OF_SPARK.items():
        if explicit[name]:
            raise OptionsError(name, problem)
    if values.sdk_location not in (None, "", "default", "container"):
        raise OptionsError("sdk_location", _INSTALL_BEAM)


def _check_log_levels(values: argparse.Namespace) -> None:
    """Check the levels of log lines, which SDKs and workers read themselves."""
    if values.default_sdk_harness_log_level is not None:
        log_level("default_sdk_harness_log_level", values.default_sdk_harness_log_level)
    by_name = values.sdk_harness_log_level_overrides or {}
    if not isinstance(by_name, Mapping):
        raise OptionsError("sdk_harness_log_level_overrides", "must be a JSON object")
    for level in by_name.values():
        log_level("sdk_harness_log_level_overrides", level)


def _job_endpoint(endpoint: str | None) -> str | None:
    if endpoint == "embed":
        raise OptionsError(
            "job_endpoint",
            "embed starts a job server of Beam's own, which does not use Spark; leave the option "
            "out: this program then runs the pipeline",
        )
    return _endpoint("job_endpoint", endpoint)


def _endpoint(option: str, value: str | None) -> str | None:
    if value and not re.search(r".:\d+$", value):
        raise OptionsError(option, f"must be HOST:PORT, not {value}")
    return value or None


def _expands_reshuffles(options: PipelineOptions, values: argparse.Namespace) -> bool:
    """Return whether ``--update_compatibility_version`` requires Beam's former Reshuffle.

    Up to 2.64 it lost panes, which is so in pipelines that require such a version.
    """
    version = values.update_compatibility_version
    try:
        return version is not None and bool(options.is_compat_version_prior_to("2.65.0"))
    except ValueError as error:
        raise OptionsError(
            "update_compatibility_version", f"{version!r} is not a version of Beam, such as 2.64.0"
        ) from error


def _job_server_access(values: argparse.Namespace, endpoint: str | None) -> ClientAccess:
    """Read the options for access to the job server."""
    names = [field.name for field in fields(ClientAccess)]
    access = ClientAccess(
        **{name: getattr(values, f"job_server_{name}", None) or None for name in names}
    )
    check_client_access(access, endpoint, _endpoint("artifact_endpoint", values.artifact_endpoint))
    return access


def _environment_overrides(values: argparse.Namespace, job_endpoint: str | None) -> str:
    overrides = environment_overrides(values)
    if overrides and job_endpoint is not None:
        raise OptionsError(
            "environment_config",
            "with --job_endpoint, only the job server's own option of this name replaces "
            "environments; leave it out",
        )
    return overrides


def _start_timeout_s(value: object) -> float:
    if value is None:
        return DEFAULT_START_TIMEOUT_S
    return positive_seconds("environment_start_timeout", value)


def _stuck_s(value: object) -> float | None:
    return None if value is None else seconds("stuck_bundle_timeout", value)


def _cache_mb(explicit: Any) -> int:
    """Check ``--max_cache_memory_usage_mb``, whose default differs from Beam's, 0."""
    value = DEFAULT_CACHE_MB if explicit is None else explicit
    try:
        megabytes = -1 if isinstance(value, bool) else int(value)
    except (TypeError, ValueError, OverflowError):
        megabytes = -1
    if not 0 <= megabytes <= _MAX_MB:
        raise OptionsError(
            "max_cache_memory_usage_mb",
            f"must be a number of MB, at most {_MAX_MB}, not {value!r:.100}",
        )
    return megabytes
