"""Stages on an SDK harness in this process: scripted, or Beam's own."""

import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.transforms.environments import ExternalEnvironment
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import PANE_INFO_UNKNOWN, WindowedValue, create

from beam_spark_runner.core.ids import StageId
from beam_spark_runner.harness.beam.job_options import JobOptions
from beam_spark_runner.harness.beam.profiling import Profiling
from beam_spark_runner.harness.remote import bundle_messages
from beam_spark_runner.harness.remote import sdk_harnesses as workers_module
from beam_spark_runner.harness.remote.remote_stage import RemoteStage
from beam_spark_runner.harness.remote.sdk_harnesses import sdk_harnesses
from beam_spark_runner.harness.remote.settings import HarnessSettings
from beam_spark_runner.portable.descriptor import describe
from beam_spark_runner.portable.sdk_options import options_json
from tests.compiled import compile_pipeline
from tests.harness.scripted_sdk import Pool, ScriptedSdk

BARE = create(None, MIN_TIMESTAMP.micros, (GlobalWindow(),), PANE_INFO_UNKNOWN)
"""Origin of an element in the global window."""
SOON_S = 28.0
"""Less than the time that a harness has to start, unless a test says otherwise."""


class Collected:
    """A receiver that keeps what it gets."""

    def __init__(self) -> None:
        self.elements: list[WindowedValue] = []

    def accept(self, windowed_value: WindowedValue) -> None:
        self.elements.append(windowed_value)

    def accept_chunk(self, values: list[Any], origins: list[WindowedValue]) -> None:
        self.elements += [
            origin.with_value(value) for value, origin in zip(values, origins, strict=True)
        ]

    @property
    def values(self) -> list[Any]:
        return [element.value for element in self.elements]


def stage_in(
    environment: Any,
    build: Callable[[beam.Pipeline], Any],
    *,
    stage: int = 0,
    job_id: str = "job",
    options: Mapping[str, object] = MappingProxyType({}),
    **settings: Any,
) -> RemoteStage:
    """Return a stage of a pipeline whose code runs in ``environment``.

    ``build`` returns what comes from an exchange; somebody reads it.
    """
    pipeline = beam.Pipeline()
    build(pipeline) | "end" >> beam.Map(repr)
    plan = compile_pipeline(pipeline.to_runner_api(default_environment=environment))
    id_ = StageId(sorted(plan.stages)[stage])
    return RemoteStage(
        plan.stages[id_].name,
        describe(plan, id_),
        HarnessSettings(job_id=job_id, options_json=options_json(options), **settings),
        id_,
    )


def stage_on(url: str, build: Callable[[beam.Pipeline], Any], **settings: Any) -> RemoteStage:
    """Return a stage of a pipeline, on the worker pool at ``url``."""
    return stage_in(ExternalEnvironment(url), build, **settings)


def run_bundle(
    stage: RemoteStage, values: list[Any], origins: list[WindowedValue] | None = None
) -> Collected:
    """Run one bundle, and return what came out."""
    collected = Collected()
    bundle = stage.start_bundle(dict.fromkeys(stage.output_coders, collected), {})
    bundle.push(values, origins or [BARE] * len(values))
    bundle.finish()
    return collected


def one_step(pipeline: beam.Pipeline) -> Any:
    """Stage 0 is one step from bytes to bytes."""
    step = beam.Map(bytes.upper).with_output_types(bytes)
    return pipeline | beam.Impulse() | "step" >> step | beam.Reshuffle()


@pytest.fixture
def scripted() -> Iterator[Callable[[Callable[[ScriptedSdk], None]], Pool]]:
    """Make pools of scripted harnesses."""
    pools: list[Pool] = []

    def make(script: Callable[[ScriptedSdk], None]) -> Pool:
        pools.append(Pool(script))
        return pools[-1]

    yield make
    workers_module.sdk_harnesses.stop()
    for pool in pools:
        pool.close()
        assert pool.errors == []


@pytest.fixture
def beam_pool() -> Iterator[str]:
    """The address of a pool of Beam's own harnesses, in threads of this process."""
    from beam_spark_runner.job.run.loopback import LoopbackPool

    pool = LoopbackPool(100 << 20, Profiling(JobOptions("{}")))
    yield pool.url
    sdk_harnesses.stop()
    pool.stop()


@pytest.fixture
def short_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_messages, "_SILENCE_S", 0.5)
    monkeypatch.setattr(bundle_messages, "_MAX_SILENCES", 2)


@pytest.fixture
def soon() -> Iterator[None]:
    start = time.monotonic()
    yield
    assert time.monotonic() - start < SOON_S
