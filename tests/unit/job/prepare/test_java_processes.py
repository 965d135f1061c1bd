"""Processes in place of containers of Java's SDK."""

import zipfile
from pathlib import Path
from typing import Any

import pytest
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.transforms.environments import (
    DockerEnvironment,
    ExternalEnvironment,
    python_sdk_capabilities,
)

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.graph.model import Graph
from beam_spark_runner.job.prepare.java_processes import STAGED, run_java_in_processes
from beam_spark_runner.portable.artifacts import Artifact, to_proto
from tests.unit.portable.steps import environments_in, steps_in

JAVA = ["beam:version:sdk_base:apache/beam_java17_sdk:2.65.0"]
MAIN = "org/apache/beam/fn/harness/FnHarness.class"
METER = "org/github/jamm/MemoryMeter.class"
NO_DOCKER = "/no/such/docker"
A_DOCKER = "/bin/sh"


def graph_in(*files: Path) -> Graph:
    """Return a graph with Java's and Python's containers, and Java's worker pool."""
    made: dict[str, Any] = {
        "java": DockerEnvironment("image", capabilities=JAVA),
        "python": DockerEnvironment("image", capabilities=python_sdk_capabilities()),
        "pool": ExternalEnvironment("pool:1", capabilities=JAVA),
    }
    environments = {name: each.to_runner_api(None) for name, each in made.items()}
    environments["java"].dependencies.extend(
        to_proto(Artifact(name=file.name, path=str(file), sha256="")) for file in files
    )
    return steps_in(**environments)


@pytest.fixture
def harness(tmp_path: Path) -> Path:
    """A jar with the main class of Java's SDK harness."""
    jar = tmp_path / "harness.jar"
    with zipfile.ZipFile(jar, "w") as file:
        file.writestr(MAIN, b"")
        file.writestr(METER, b"")
    return jar


def urns_in(graph: Graph) -> dict[str, str]:
    return {name: each.urn for name, each in environments_in(graph).items()}


@pytest.mark.parametrize(("class_path", "docker"), [(STAGED, A_DOCKER), (None, NO_DOCKER)])
def test_java_runs_in_processes_of_the_staged_jars(
    harness: Path, class_path: str | None, docker: str
) -> None:
    changed = run_java_in_processes(graph_in(harness), class_path, docker)
    assert urns_in(changed) == {
        "java": urns.ENVIRONMENT_PROCESS,
        "python": urns.ENVIRONMENT_DOCKER,
        "pool": urns.ENVIRONMENT_EXTERNAL,
    }
    assert process_of(changed).env["BEAM_SPARK_JAVA_CLASS_PATH"] == ""
    assert len(environments_in(changed)["java"].dependencies) == 1


def process_of(graph: Graph) -> beam_runner_api_pb2.ProcessPayload:
    payload = environments_in(graph)["java"].payload
    return beam_runner_api_pb2.ProcessPayload.FromString(payload)


def test_containers_stay_where_there_is_a_program_for_them(harness: Path) -> None:
    graph = graph_in(harness)
    assert run_java_in_processes(graph, None, A_DOCKER) is graph


def test_containers_stay_if_the_staged_jars_lack_something(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert urns_in(run_java_in_processes(graph_in(), None, NO_DOCKER))["java"] == (
        urns.ENVIRONMENT_DOCKER
    )
    assert "--java_class_path" in caplog.text


def test_a_class_path_of_the_executors_needs_no_staged_jars() -> None:
    changed = run_java_in_processes(graph_in(), "/opt/beam/*", A_DOCKER)
    assert process_of(changed).env["BEAM_SPARK_JAVA_CLASS_PATH"] == "/opt/beam/*"


def test_a_missing_harness_is_an_error_that_names_it(tmp_path: Path) -> None:
    jar, text = tmp_path / "other.jar", tmp_path / "a.txt"
    zipfile.ZipFile(jar, "w").close()
    text.write_text("no jar")
    with pytest.raises(OptionsError, match=r"none of the 2 files .*jamm and .*-harness") as error:
        run_java_in_processes(graph_in(jar, text), STAGED, A_DOCKER)
    assert error.value.option == "java_class_path"


def test_the_harness_alone_is_not_enough(tmp_path: Path) -> None:
    """Beam's expansion services stage it without the class, which Beam's containers have."""
    jar = tmp_path / "service.jar"
    with zipfile.ZipFile(jar, "w") as file:
        file.writestr(MAIN, b"")
    with pytest.raises(OptionsError, match=r"has org/github/jamm.* artifacts com.*:jamm, and what"):
        run_java_in_processes(graph_in(jar), STAGED, A_DOCKER)
