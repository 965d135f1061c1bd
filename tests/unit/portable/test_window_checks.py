"""Windows that cannot be carried, or whose SDK cannot say when they end."""

from typing import Any

import apache_beam as beam
import pytest
from apache_beam.portability import common_urns
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.transforms.environments import (
    EmbeddedPythonEnvironment,
    ProcessEnvironment,
    python_sdk_capabilities,
)

from beam_spark_runner.core.errors import InvariantError, PipelineRefusedError
from beam_spark_runner.portable.descriptor import describe
from tests.compiled import compile_pipeline
from tests.spark.lanes import Lanes
from tests.spark.restrictions import RESTRICTION

WITHOUT_END = [
    each for each in python_sdk_capabilities() if each != common_urns.coders.CUSTOM_WINDOW.urn
]
OF_JAVA = [common_urns.coders.CUSTOM_WINDOW.urn, common_urns.coders.KV.urn]


class Counts(beam.DoFn):  # type: ignore[misc]
    def process(self, element: Any, tracker: Any = RESTRICTION) -> None: ...


def proto_with(step: Any, environment: Any) -> Any:
    p = beam.Pipeline()
    p | beam.Create([1]) | "into lanes" >> beam.WindowInto(Lanes()) | "step" >> step
    return p.to_runner_api(default_environment=environment)


def test_an_sdk_that_can_say_when_windows_end_is_taken() -> None:
    for capabilities in (python_sdk_capabilities(), ()):
        environment = ProcessEnvironment("", capabilities=capabilities)
        compile_pipeline(proto_with(beam.ParDo(Counts()), environment))


def test_an_sdk_that_cannot_say_when_windows_end_is_refused() -> None:
    environment = ProcessEnvironment("", capabilities=WITHOUT_END)
    with pytest.raises(PipelineRefusedError, match="beam:coder:custom_window:v1") as raised:
        compile_pipeline(proto_with(beam.Map(print), environment))
    assert "into lanes" in str(raised.value)
    assert "step" in str(raised.value)


def test_residuals_of_another_sdk_in_such_windows_are_refused() -> None:
    environment = ProcessEnvironment("", capabilities=OF_JAVA)
    compile_pipeline(proto_with(beam.Map(print), environment))
    with pytest.raises(PipelineRefusedError, match="a splittable DoFn in windows of the coder"):
        compile_pipeline(proto_with(beam.ParDo(Counts()), environment))


def test_code_runs_in_the_workers_or_in_harnesses_but_never_in_both() -> None:
    proto = proto_with(beam.Map(print), EmbeddedPythonEnvironment())
    proto.components.environments["other"].CopyFrom(
        ProcessEnvironment("").to_runner_api(PipelineContext())
    )
    for transform in proto.components.transforms.values():
        if transform.unique_name == "into lanes" and not transform.subtransforms:
            transform.environment_id = "other"
    plan = compile_pipeline(proto)
    (stage,) = (id_ for id_, each in plan.stages.items() if "step" in each.name)
    with pytest.raises(InvariantError, match="would run in a Python worker"):
        describe(plan, stage)
