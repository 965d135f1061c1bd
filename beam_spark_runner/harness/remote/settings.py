"""The settings of a job for all its SDK harnesses."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from beam_spark_runner.core.step_chunks import StepChunks
from beam_spark_runner.harness.environments.installed_packages import Archive
from beam_spark_runner.harness.main_classes import CodedClasses


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessSettings:
    """The settings of a job for its SDK harnesses. Serialised to executors."""

    job_id: str
    options_json: str = "{}"  # the pipeline options, a JSON object
    main_classes: CodedClasses = field(default_factory=dict)  # of the program's main module
    # Where harnesses find the program's modules. A Python worker's environment says so already.
    import_path: tuple[str, ...] = ()
    start_timeout_s: float = 120.0
    cache_s: float = 0.0  # --environment_cache_millis; 0: harnesses serve this job only
    archives: Mapping[str, Archive] = field(default_factory=dict)  # of staged files, by digest
    parallelism: int = 1  # --sdk_worker_parallelism: harnesses over which stages are spread
    docker_executable: str = "docker"
    step_chunks: StepChunks = "auto"  # in harnesses that have this package
    stuck_s: float = 0.0  # --stuck_bundle_timeout; 0: none
