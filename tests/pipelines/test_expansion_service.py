"""External transforms: steps that Beam's Python expansion service makes, in its environments."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import psutil
import pytest
from apache_beam.transforms.external import ExternalTransform, ImplicitSchemaPayloadBuilder

from beam_spark_runner.core.errors import EnvironmentStartError
from integration.expansion_service import free_port, listening
from tests.harvest import harvest

pytestmark = pytest.mark.grpc

SERVICE = "apache_beam.runners.portability.expansion_service_main"
NAMED = "beam:transforms:python:fully_qualified_named"


class WithPid(beam.PTransform):  # type: ignore[misc]
    """Says of each text which process has seen it."""

    def expand(self, texts: beam.PCollection) -> beam.PCollection:
        return texts | beam.Map(lambda text: f"{text} {os.getpid()}").with_output_types(str)


@pytest.fixture
def serve() -> Iterator[Callable[..., tuple[str, psutil.Process]]]:
    """Start an expansion service; get its address, and its process."""
    here = Path(__file__).parent
    modules = {"PYTHONPATH": os.pathsep.join([str(here), str(here.parents[1])])}
    with contextlib.ExitStack() as running:

        def start(*flags: str) -> tuple[str, psutil.Process]:
            port = free_port()
            command = [sys.executable, "-m", SERVICE, f"--port={port}"]
            command += ["--fully_qualified_name_glob=*", *flags]
            process = running.enter_context(listening(command, port, modules))
            return f"127.0.0.1:{port}", psutil.Process(process.pid)

        yield start


def walk_by(address: str) -> Callable[[beam.Pipeline], dict[str, Any]]:
    builder = ImplicitSchemaPayloadBuilder({"constructor": f"{WithPid.__module__}.WithPid"})

    def walk(pipeline: beam.Pipeline) -> dict[str, Any]:
        texts = pipeline | beam.Create(["a", "b"]).with_output_types(str)
        return {"seen": texts | "Theirs" >> ExternalTransform(NAMED, builder, address)}

    return walk


@pytest.mark.rare
def test_steps_run_in_the_service_if_it_serves_workers(
    spark_session: Any, serve: Callable[..., tuple[str, psutil.Process]]
) -> None:
    """Its environment is a container's, or this."""
    address, service = serve("--serve_loopback_worker")
    seen = harvest(spark_session, walk_by(address))["seen"]
    assert sorted(seen) == [f"{text} {service.pid}" for text in "ab"]


@pytest.mark.rare
def test_steps_run_in_processes_if_it_says_so(
    spark_session: Any, serve: Callable[..., tuple[str, psutil.Process]]
) -> None:
    address, service = serve("--environment_type=PROCESS", "--environment_config={}")
    seen = harvest(spark_session, walk_by(address))["seen"]
    texts, pids = zip(*(each.split() for each in sorted(seen)), strict=True)
    assert texts == ("a", "b")
    assert not {int(pid) for pid in pids} & {os.getpid(), service.pid}


@pytest.mark.rare
def test_steps_in_containers_run_in_processes_if_the_pipeline_says_so(
    spark_session: Any, serve: Callable[..., tuple[str, psutil.Process]]
) -> None:
    address, _ = serve()
    override = '{"beam:env:docker:v1": {"environment_type": "PROCESS"}}'
    seen = harvest(spark_session, walk_by(address), f"--environment_config={override}")["seen"]
    assert [each.split()[0] for each in sorted(seen)] == ["a", "b"]


def test_steps_in_containers_name_the_step_where_there_is_no_docker(
    spark_session: Any, serve: Callable[..., tuple[str, psutil.Process]]
) -> None:
    address, _ = serve()
    with pytest.raises(EnvironmentStartError, match=r"Theirs: .*--docker_executable.*No such file"):
        harvest(spark_session, walk_by(address), "--docker_executable=/no/such/docker")
