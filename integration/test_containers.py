"""SDK harnesses in containers of a real engine: they serve, are shared, and say what goes wrong."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.transforms.environments import (
    DockerEnvironment,
    python_sdk_docker_capabilities,
)

from beam_spark_runner.core.errors import BundleFailedError, EnvironmentStartError
from beam_spark_runner.harness.environments import docker
from beam_spark_runner.harness.remote.remote_stage import RemoteStage
from beam_spark_runner.harness.remote.sdk_harnesses import sdk_harnesses
from integration.container_engine import DOCKER, Engine
from integration.container_images import (
    go_image,
    image_that_fails,
    python_image,
    python_image_of_another_beam,
)
from tests.harness.conftest import one_step, run_bundle, stage_in
from tests.harness.processes import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.grpc]


@pytest.fixture(autouse=True)
def nothing_is_left(engine: Engine) -> Iterator[None]:
    assert engine.containers() == set()
    yield
    sdk_harnesses.stop()
    wait_for(lambda: engine.containers() == set())


def stage(engine: Engine, image: str, build: Any = one_step, **settings: Any) -> RemoteStage:
    settings = {"docker_executable": engine.program, **settings}
    environment = DockerEnvironment(image, capabilities=python_sdk_docker_capabilities())
    return stage_in(environment, build, **settings)


def owner_in(engine: Engine, container: str) -> str:
    return str(engine.inspect(container)["Config"]["Labels"][docker.OWNER_LABEL])


def test_one_container_serves_all_bundles_of_a_job_and_says_whose_it_is(engine: Engine) -> None:
    image = python_image(engine)
    assert run_bundle(stage(engine, image, job_id="a"), [b"abc"]).values == [b"ABC"]
    (first,) = engine.containers()
    assert run_bundle(stage(engine, image, job_id="a"), [b"def"]).values == [b"DEF"]
    assert engine.containers() == {first}
    found = engine.inspect(first)
    assert found["Config"]["Labels"][docker.JOB_LABEL] == "a"
    assert f"/{os.getpid()}/" in owner_in(engine, first)
    assert found["HostConfig"]["NetworkMode"] == "host"
    sdk_harnesses.end_job("a")
    wait_for(lambda: engine.containers() == set())


def test_a_cached_container_is_another_jobs(engine: Engine) -> None:
    image = python_image(engine)
    run_bundle(stage(engine, image, job_id="a", cache_s=60.0), [b"abc"])
    first = engine.containers()
    sdk_harnesses.end_job("a")
    run_bundle(stage(engine, image, job_id="b", cache_s=60.0), [b"abc"])
    assert engine.containers() == first


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("no-such-image:1", "has no container image no-such-image:1 on this machine"),
        ("No Image", "invalid reference format"),
        ("--privileged", "'--privileged' is not the name of a container image"),
    ],
)
def test_an_image_that_cannot_be_had(engine: Engine, image: str, words: str) -> None:
    with pytest.raises(EnvironmentStartError, match=words):
        run_bundle(stage(engine, image), [b"abc"])


def test_a_daemon_that_does_not_answer(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if engine != DOCKER:
        pytest.skip(f"{engine.program} has no daemon")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    with pytest.raises(EnvironmentStartError, match="Cannot connect to the Docker daemon"):
        run_bundle(stage(engine, "some-image"), [b"abc"])


def test_a_program_that_is_not_there(engine: Engine) -> None:
    with pytest.raises(EnvironmentStartError, match=r"--docker_executable.*No such file"):
        run_bundle(stage(engine, "some-image", docker_executable="/no/such/program"), [b"abc"])


def test_an_image_that_does_not_run(engine: Engine) -> None:
    with pytest.raises(
        EnvironmentStartError, match="ended with status 126 before it connected"
    ) as e:
        run_bundle(stage(engine, image_that_fails(engine)), [b"abc"])
    assert "permission denied" in str(e.value)


def test_an_image_of_another_sdk(engine: Engine) -> None:
    """Go's boot program wants a program that no Python pipeline has."""
    image = go_image(engine)
    words = f"the container of {image} ended with status 1 before it connected"
    with pytest.raises(EnvironmentStartError, match=words):
        run_bundle(stage(engine, image), [b"abc"])


def test_an_image_of_another_version_of_beam_is_named_where_user_code_fails(engine: Engine) -> None:
    def failing(pipeline: beam.Pipeline) -> Any:
        def step(_: bytes) -> bytes:
            raise ValueError("no luck")

        return pipeline | beam.Impulse() | "step" >> beam.Map(step) | beam.Reshuffle()

    image = python_image_of_another_beam(engine, "2.70.0")
    words = rf"no luck \(the container image {image} has Apache Beam 2.70.0, but the pipeline was"
    with pytest.raises(BundleFailedError, match=words) as raised:
        run_bundle(stage(engine, image, build=failing), [b"abc"])
    assert raised.value.step == "step"
    with pytest.raises(BundleFailedError) as raised:
        run_bundle(stage(engine, python_image(engine), build=failing), [b"abc"])
    assert "Apache Beam" not in raised.value.cause


def test_the_sweep_spares_who_is_alive(engine: Engine) -> None:
    """A container of a process that has gone, one of this process, and one of another machine."""
    here = docker._Owner.of(os.getpid())
    assert here is not None
    gone = here._replace(start_ticks=here.start_ticks + 1)
    elsewhere = here._replace(boot="another", pid=1, start_ticks=1)
    image = go_image(engine)
    for owner in (here, gone, elsewhere):
        engine.ask("create", f"--label={docker.OWNER_LABEL}={owner}", image)
    try:
        assert len(docker.sweep(engine.program)) == 1
        left = [owner_in(engine, each) for each in engine.containers()]
        assert sorted(left) == sorted([str(here), str(elsewhere)])
    finally:
        engine.ask("rm", "--force", *engine.containers())
