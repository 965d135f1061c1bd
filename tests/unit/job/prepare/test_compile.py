"""Which pipelines stream."""

import re
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.io import kafka
from apache_beam.io.gcp.pubsub import _PubSubSink
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.window import FixedWindows

from beam_spark_runner.core.errors import PipelineRefusedError
from tests.compiled import compile_pipeline
from tests.unit.portable.pipelines import proto_of


def ticks(p: beam.Pipeline) -> Any:
    return p | "ticks" >> PeriodicImpulse(0, 1) | "use" >> beam.Map(str)


def with_stable_input(proto: Any) -> Any:
    """Return the pipeline with a step "use" that asks for stable input."""
    for transform in proto.components.transforms.values():
        if transform.unique_name == "use" and transform.spec.urn == "beam:transform:pardo:v1":
            payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
            payload.requires_stable_input = True
            transform.spec.payload = payload.SerializeToString()
    proto.requirements.append("beam:requirement:pardo:stable_input:v1")
    return proto


def test_what_is_unbounded_streams() -> None:
    assert compile_pipeline(proto_of(ticks)).is_streaming


def test_a_test_stream_does_too() -> None:
    assert compile_pipeline(proto_of(lambda p: p | Stream().add_elements([1]))).is_streaming


@pytest.mark.parametrize("is_streaming", [False, True])
def test_what_is_bounded_does_if_it_is_to(is_streaming: bool) -> None:
    proto = proto_of(lambda p: p | beam.Create([1]) | beam.Map(str))
    assert compile_pipeline(proto, is_streaming=is_streaming).is_streaming is is_streaming


def test_a_drained_pipeline_is_not_streaming() -> None:
    assert not compile_pipeline(proto_of(ticks), drains=True).is_streaming


def test_stable_input_streams_in_one_job() -> None:
    plan = compile_pipeline(with_stable_input(proto_of(ticks)))
    assert plan.is_streaming
    assert len(plan.segments) == 1
    (stage,) = (each for each in plan.stages.values() if each.is_stable)
    assert plan.graph.transforms[stage.transforms[0]].name == "use"


def test_a_plan_that_is_too_deep_for_one_job_takes_two() -> None:
    def build(p: beam.Pipeline) -> None:
        pairs = p | Stream().add_elements([("a", 1)]) | beam.WindowInto(FixedWindows(1))
        for number in range(13):
            pairs = pairs | f"group {number}" >> beam.GroupByKey()
            pairs = pairs | f"deep {number}" >> beam.MapTuple(lambda key, values: (key, 1))

    plan = compile_pipeline(proto_of(build))
    assert [len(segment.levels) for segment in plan.segments] == [13, 1]


@pytest.mark.parametrize(
    ("step", "instead"),
    [
        pytest.param(
            lambda p: (
                p
                | "Pull"
                >> beam.io.ReadFromPubSub(subscription="projects/project/subscriptions/messages")
            ),
            "UnboundedSource .*that pulls messages",
            id="read",
        ),
        pytest.param(
            lambda p: (
                p
                | beam.Create([b"a"])
                | "Push" >> beam.io.Write(_PubSubSink("projects/project/topics/topic", None, None))
            ),
            "a DoFn that publishes",
            id="write, of which nothing comes out",
        ),
    ],
)
def test_what_a_runner_has_to_replace_is_refused_with_what_to_use_instead(
    step: Callable[[beam.Pipeline], Any], instead: str
) -> None:
    with pytest.raises(PipelineRefusedError, match=rf"P(ull|ush).*pubsub_.*; use .*{instead}"):
        compile_pipeline(proto_of(step))


@pytest.mark.parametrize(
    ("urn", "instead"),
    [
        (kafka.ReadFromKafka.URN_WITH_METADATA, "ReadFromKafka"),
        (kafka.ReadFromKafka.URN_WITHOUT_METADATA, "ReadFromKafka"),
        (kafka.WriteToKafka.URN, "WriteToKafka"),
        (kafka.WriteToKafka.URN_WITH_HEADERS, "WriteToKafka"),
        (common_urns.ManagedTransforms.Urns.KAFKA_READ.urn, "ReadFromKafka"),
        (common_urns.ManagedTransforms.Urns.KAFKA_WRITE.urn, "WriteToKafka"),
    ],
)
def test_kafka_in_java_without_parts_is_refused_by_name(urn: str, instead: str) -> None:
    """Java's SDK leaves it to runners that have a source or sink of their own."""
    proto = proto_of(lambda p: p | "Kafka" >> beam.Create([1]))
    kafka_step(proto).spec.urn = urn
    del kafka_step(proto).subtransforms[:]
    with pytest.raises(
        PipelineRefusedError, match=f"{re.escape(urn)}.*; use {instead} of beam_spark_runner"
    ):
        compile_pipeline(proto)


def test_parts_of_kafka_in_java_run() -> None:
    proto = proto_of(lambda p: p | "Kafka" >> beam.Create([1]))
    kafka_step(proto).spec.urn = kafka.ReadFromKafka.URN_WITH_METADATA
    compile_pipeline(proto)


def kafka_step(proto: Any) -> Any:
    transforms = proto.components.transforms.values()
    (composite,) = [each for each in transforms if each.unique_name == "Kafka"]
    return composite
