"""Environments of a pipeline: those that run the same code are one."""

from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.portability.api import beam_runner_api_pb2 as pb

from beam_spark_runner.portable.environment_facts import (
    ends_with_its_siblings,
    names_keys_of_multimaps,
)
from beam_spark_runner.portable.pipeline import from_proto
from beam_spark_runner.portable.placing import merge_environments
from tests.unit.portable.graphs import of, transform_named
from tests.unit.portable.pipelines import proto_of


def test_the_environment_of_a_combine_may_stand_in_its_parts() -> None:
    proto = proto_of(lambda p: p | of((1, 2)) | "combine" >> beam.CombinePerKey(sum))
    (composite,) = [t for t in proto.components.transforms.values() if t.unique_name == "combine"]
    environment = composite.environment_id
    composite.environment_id = ""
    assert transform_named(from_proto(proto), "combine").environment == environment


def with_two_environments(proto: pb.Pipeline, change: Callable[[pb.Environment], None]) -> set[Any]:
    """Environments of a pipeline's steps where "second" is in another one than "first"."""
    components = proto.components
    (id_,) = components.environments
    components.environments["other"].CopyFrom(components.environments[id_])
    change(components.environments["other"])
    for transform in components.transforms.values():
        if transform.unique_name.startswith("second"):
            transform.environment_id = "other"
    graph = merge_environments(from_proto(proto))
    used = {transform_named(graph, name).environment for name in ("first", "second")}
    assert used <= set(graph.environments)
    return used


def two_maps(p: beam.Pipeline) -> None:
    p | of(1) | "first" >> beam.Map(str) | "second" >> beam.Map(str)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda e: e.resource_hints.update(ram=b"1"), id="resource hints"),
        pytest.param(lambda e: e.ClearField("capabilities"), id="capabilities"),
        pytest.param(lambda e: e.display_data.add(urn="text"), id="display data"),
    ],
)
def test_environments_that_run_the_same_code_are_one(change: Any) -> None:
    assert len(with_two_environments(proto_of(two_maps), change)) == 1


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda e: setattr(e, "urn", "beam:env:process:v1"), id="another kind"),
        pytest.param(lambda e: setattr(e, "payload", b"image"), id="another payload"),
        pytest.param(lambda e: e.dependencies.add(type_urn="file"), id="other packages"),
    ],
)
def test_environments_that_may_run_other_code_stay_apart(change: Any) -> None:
    assert len(with_two_environments(proto_of(two_maps), change)) == 2


@pytest.mark.parametrize(
    ("urn", "sdk", "ends"),
    [
        ("beam:env:external:v1", "apache/beam_java17_sdk:2.65.0", True),
        ("beam:env:process:v1", "apache/beam_java17_sdk:2.65.0", False),
        ("beam:env:external:v1", "apache/beam_go_sdk:2.65.0", False),
        ("beam:env:external:v1", "apache/beam_python3.11_sdk:2.77.0", False),
    ],
)
def test_harnesses_that_end_with_the_first_of_them(urn: str, sdk: str, ends: bool) -> None:
    environment = pb.Environment(urn=urn, capabilities=[f"beam:version:sdk_base:{sdk}"])
    assert ends_with_its_siblings(environment) is ends


@pytest.mark.parametrize(
    ("sdk", "names_them"),
    [
        ("apache/beam_java17_sdk:2.65.0", False),
        ("apache/beam_java11_sdk:2.68.1", False),
        ("apache/beam_java17_sdk:2.69.0", True),
        ("apache/beam_java17_sdk:3.0.0", True),
        ("apache/beam_java17_sdk:unknown", False),
        ("apache/beam_go_sdk:2.65.0", True),
        ("apache/beam_python3.11_sdk:2.65.0", True),
    ],
)
def test_sdks_that_do_not_say_of_which_key_they_request_a_multimap(
    sdk: str, names_them: bool
) -> None:
    environment = pb.Environment(capabilities=[f"beam:version:sdk_base:{sdk}"])
    assert names_keys_of_multimaps(environment) is names_them
