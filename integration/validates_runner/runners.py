"""The runners that suites are run on, by name, each in the place of Beam's default runner."""

import functools
import os
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from apache_beam import pipeline as beam_pipeline
from apache_beam.metrics.metric import MetricResults
from apache_beam.options.pipeline_options import (
    GoogleCloudOptions,
    PipelineOptions,
    StandardOptions,
)
from apache_beam.runners.runner import PipelineResult, PipelineRunner, PipelineState

from integration.validates_runner import containers

PRISM = Path(sys.executable).parent / "prism"
UNDER_TEST = "RunnerUnderTest"
"""What ``--runner`` and the default are while a suite runs."""


class DoNothingRunner(PipelineRunner):  # type: ignore[misc]
    """Builds the pipeline's proto, as every runner does, and says that it is done."""

    def run_portable_pipeline(self, pipeline: Any, options: Any) -> PipelineResult:
        return _Nothing(PipelineState.DONE)


class _Nothing(PipelineResult):  # type: ignore[misc]
    def monitoring_infos(self) -> list[Any]:
        return []

    def wait_until_finish(self, duration: int | None = None) -> str:
        return str(self.state)

    def metrics(self) -> MetricResults:
        return _NoMetrics()

    def cancel(self) -> str:
        return str(self.state)


class _NoMetrics(MetricResults):  # type: ignore[misc]
    def query(self, filter: Any = None) -> dict[str, list[Any]]:
        kinds = (
            self.COUNTERS,
            self.DISTRIBUTIONS,
            self.GAUGES,
            self.STRINGSETS,
            self.BOUNDED_TRIES,
            self.HISTOGRAMS,
        )
        return {kind: [] for kind in kinds}


def _spark_embedded() -> PipelineRunner:
    from beam_spark_runner import SparkPortableRunner

    return SparkPortableRunner(spark=_session())


def _options(*flags: str) -> Mapping[str, Any]:
    """Parse options, before tests declare some of their own that contradict each other."""
    given: Mapping[str, Any] = PipelineOptions(list(flags)).get_all_options(drop_default=True)
    return given


def _spark_with(given: Mapping[str, Any]) -> PipelineRunner:
    return _with(given, _session())


def _in_process() -> PipelineRunner:
    return _with(_options(f"--spark_master_url={IN_PROCESS}"), None)


def _in_state_store() -> PipelineRunner:
    return _with(_state_store_options(), None)


@functools.cache
def _state_store_options() -> Mapping[str, Any]:
    return _options(
        f"--spark_master_url={IN_PROCESS}",
        "--streaming",
        f"--state_store={os.environ[STATE_STORE]}",
    )


def _with(given: Mapping[str, Any], spark: Any) -> PipelineRunner:
    from beam_spark_runner import SparkPortableRunner

    class Runner(SparkPortableRunner):
        """As if each test gave these options."""

        def default_environment(self, options: Any) -> Any:
            options._all_options.update(given)
            return super().default_environment(options)

    return Runner(spark=spark)


@functools.cache
def _session() -> Any:
    from beam_spark_runner.spark.session.launch import start_classic

    conf = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    session = start_classic("local[2]", "conformance", conf)
    session.sparkContext.setLogLevel("OFF")  # tests that fail on purpose fill the log
    return session


def spark_has_died() -> bool:
    """Whether this process had a JVM, and has it no more."""
    if not _session.cache_info().currsize:
        return False
    return _session().sparkContext._gateway.proc.poll() is not None


def _fn_api() -> PipelineRunner:
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    return FnApiRunner()


def _direct() -> PipelineRunner:
    from apache_beam.options.pipeline_options import PrismRunnerOptions
    from apache_beam.runners.direct.direct_runner import DirectRunner

    class Runner(DirectRunner):  # type: ignore[misc]
        """Hands what it can to the Prism of this environment; else Beam downloads one."""

        def run_pipeline(self, pipeline: Any, options: Any) -> PipelineResult:
            if PRISM.exists():
                options.view_as(PrismRunnerOptions).prism_location = str(PRISM)
            return super().run_pipeline(pipeline, options)

    return Runner()


SPARK_EMBEDDED = "spark-embedded"
SPARK_PROCESS = "spark-process"
SPARK_LOOPBACK = "spark-loopback"
SPARK_DOCKER = "spark-docker"
SPARK_ONE_PARTITION = "spark-one-partition"
"""A few elements are one bundle."""
SPARK_ONE_PROCESS = "spark-one-process"
"""User code runs in the test's own process, too, as with FnApiRunner."""
IN_PROCESS = "in-process"
"""Without Spark: all tasks run in the test's own process."""
IN_STATE_STORE = "in-state-store"
"""The same, with all pipelines in epochs and their keys in a state store."""
STATE_STORE = "STATE_STORE"
"""The environment variable with the URL of that state store."""
NOTHING = "nothing"
FN_API = "FnApiRunner"
DIRECT = "DirectRunner"
_LOOPBACK = "--environment_type=LOOPBACK"
_ONE_PARTITION = "--parallelism=1"
_SHARED = "--environment_cache_millis=600000"
"""Tests share harnesses."""
_ENVIRONMENTS: dict[str, Callable[[], Collection[str]]] = {
    SPARK_PROCESS: lambda: (
        "--environment_type=PROCESS",
        '--environment_config={"command": ""}',
        _SHARED,
    ),
    SPARK_LOOPBACK: lambda: (_LOOPBACK,),
    SPARK_DOCKER: lambda: (
        "--environment_type=DOCKER",
        f"--environment_config={os.environ[containers.IMAGE]}",
        f"--docker_executable={os.environ[containers.EXECUTABLE]}",
        _SHARED,
    ),
}
"""Of runners whose user code runs in SDK harnesses: the options that say where."""


@functools.cache
def _environment(runner: str) -> Mapping[str, Any]:
    return _options(*_ENVIRONMENTS[runner]())


RUNNERS: dict[str, Callable[[], PipelineRunner]] = {
    SPARK_EMBEDDED: _spark_embedded,
    SPARK_PROCESS: lambda: _spark_with(_environment(SPARK_PROCESS)),
    SPARK_LOOPBACK: lambda: _spark_with(_environment(SPARK_LOOPBACK)),
    SPARK_DOCKER: lambda: _spark_with(_environment(SPARK_DOCKER)),
    SPARK_ONE_PARTITION: functools.partial(_spark_with, _options(_ONE_PARTITION)),
    SPARK_ONE_PROCESS: functools.partial(_spark_with, _options(_LOOPBACK, _ONE_PARTITION)),
    IN_PROCESS: _in_process,
    IN_STATE_STORE: _in_state_store,
    NOTHING: DoNothingRunner,
    FN_API: _fn_api,
    DIRECT: _direct,
}

_installed: list[str] = []


def has_environment() -> bool:
    """Whether user code of the runner under test runs in SDK harnesses."""
    return _installed[-1] in _ENVIRONMENTS


def choose_environment(options: PipelineOptions) -> None:
    """Have a job service's client run user code where the runner under test is to run it.

    Args:
        options: of the client's pipeline. If it is in Spark's workers, they stay as they are.
    """
    if has_environment():
        options._all_options.update({"environment_config": None, **_environment(_installed[-1])})
        # What differs from job to job keeps harnesses from being shared.
        options.view_as(GoogleCloudOptions).job_name = None


def is_spark_under_test() -> bool:
    """Whether the runner under test is this package's, in whatever environment."""
    return _installed[-1] in (IN_PROCESS, IN_STATE_STORE) or _installed[-1].startswith("spark-")


def install(name: str, *, in_place_of: Collection[str] = ()) -> None:
    """Make the runner of that name Beam's default one in this process.

    Args:
        name: of ``RUNNERS``.
        in_place_of: names of Beam's runners that tests pin, and that mean it, too.
    """
    make = RUNNERS[name]
    _installed.append(name)
    if has_environment():
        _environment(name)  # now: tests declare options of their own that contradict each other
    if name == IN_STATE_STORE:
        _state_store_options()  # for the same reason
    create_runner = beam_pipeline.create_runner

    def create(runner_name: str) -> PipelineRunner:
        if runner_name != UNDER_TEST and runner_name not in in_place_of:
            return create_runner(runner_name)
        runner = make()
        runner.is_under_test = True
        return runner

    beam_pipeline.create_runner = create
    StandardOptions.DEFAULT_RUNNER = UNDER_TEST
    # As Beam's own default runner: for others it runs `pip freeze`, for a log, once per expansion.
    StandardOptions.LOCAL_RUNNERS = [*StandardOptions.LOCAL_RUNNERS, UNDER_TEST]


def is_under_test(runner: PipelineRunner) -> bool:
    """Whether a pipeline got this runner from ``install``."""
    return getattr(runner, "is_under_test", False)
