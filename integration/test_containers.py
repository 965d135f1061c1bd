"""SDK harnesses in containers of a real Docker engine: they serve, are shared, none is left."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from apache_beam.transforms.environments import DockerEnvironment

from beam_spark_runner.core.errors import EnvironmentStartError
from beam_spark_runner.harness.environments import docker
from beam_spark_runner.harness.remote.sdk_workers import sdk_workers
from beam_spark_runner.harness.remote.stage import RemoteStage
from integration.container_images import go_image, image_that_fails, python_image, why_not
from tests.cli.programs import Program, run
from tests.harness.conftest import one_step, run_bundle, stage_in
from tests.harness.processes import wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.grpc,
    pytest.mark.skipif(bool(why_not("go")), reason=why_not("go")),
]
needs_python = pytest.mark.skipif(
    bool(why_not("go", "debootstrap")), reason=why_not("go", "debootstrap")
)
_LABEL = f"label={docker.OWNER_LABEL}"


def ask(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def containers() -> set[str]:
    return set(ask("ps", "--all", "--quiet", f"--filter={_LABEL}").split())


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    assert containers() == set()
    yield
    sdk_workers.stop()
    wait_for(lambda: containers() == set())


def stage(image: str, **settings: Any) -> RemoteStage:
    return stage_in(DockerEnvironment(image), one_step, **settings)


@needs_python
def test_one_container_serves_all_bundles_of_a_job_and_says_whose_it_is() -> None:
    assert run_bundle(stage(python_image(), job_id="a"), [b"abc"]).values == [b"ABC"]
    (first,) = containers()
    assert run_bundle(stage(python_image(), job_id="a"), [b"def"]).values == [b"DEF"]
    assert containers() == {first}
    (found,) = json.loads(ask("inspect", first))
    assert found["Config"]["Labels"][docker.JOB_LABEL] == "a"
    assert f"/{os.getpid()}/" in found["Config"]["Labels"][docker.OWNER_LABEL]
    assert found["HostConfig"]["NetworkMode"] == "host"
    sdk_workers.end_job("a")
    wait_for(lambda: containers() == set())


@needs_python
def test_a_cached_container_is_another_jobs() -> None:
    run_bundle(stage(python_image(), job_id="a", cache_s=60.0), [b"abc"])
    first = containers()
    sdk_workers.end_job("a")
    run_bundle(stage(python_image(), job_id="b", cache_s=60.0), [b"abc"])
    assert containers() == first


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("no-such-image:1", "has no container image no-such-image:1 on this machine"),
        ("No Image", "invalid reference format"),
        ("--privileged", "'--privileged' is not the name of a container image"),
    ],
)
def test_an_image_that_cannot_be_had(image: str, words: str) -> None:
    with pytest.raises(EnvironmentStartError, match=words):
        run_bundle(stage(image), [b"abc"])


def test_a_daemon_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    with pytest.raises(EnvironmentStartError, match="Cannot connect to the Docker daemon"):
        run_bundle(stage("some-image"), [b"abc"])


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(EnvironmentStartError, match=r"--docker_executable.*No such file"):
        run_bundle(stage("some-image", docker_executable="/no/such/podman"), [b"abc"])


def test_an_image_that_does_not_run() -> None:
    with pytest.raises(
        EnvironmentStartError, match="ended with status 126 before it connected"
    ) as e:
        run_bundle(stage(image_that_fails()), [b"abc"])
    assert "permission denied" in str(e.value)


def test_an_image_of_another_sdk() -> None:
    """Go's boot program wants a program that no Python pipeline has."""
    words = f"the container of {go_image()} ended with status 1 before it connected"
    with pytest.raises(EnvironmentStartError, match=words):
        run_bundle(stage(go_image()), [b"abc"])


_SLEEPER = """
def wait(x):
    import time
    print("began", flush=True)
    time.sleep(600)

with beam.Pipeline(argv=[*OPTIONS, "--spark_master_url=local[2]"]) as p:
    p | beam.Create(["a"]) | beam.Map(wait)
"""


def _in(image: str) -> list[str]:
    return ["--environment_type=DOCKER", f"--environment_config={image}"]


@needs_python
@pytest.mark.parametrize("who", ["guard", "worker", "program"])
def test_a_kill_leaves_no_container(who: str, tmp_path: Path) -> None:
    program = Program(tmp_path, _SLEEPER, *_in(python_image()))
    try:
        assert program.wait_until(
            lambda: any("began" in ask("logs", each) for each in containers())
        )
        (label,) = {
            json.loads(ask("inspect", each))[0]["Config"]["Labels"][docker.OWNER_LABEL]
            for each in containers()
        }
        worker = psutil.Process(int(label.split("/")[2]))
        (guard,) = (each for each in worker.children() if "guard.py" in " ".join(each.cmdline()))
        victims = {"guard": guard, "worker": worker, "program": psutil.Process(program.pid)}
        os.kill(victims[who].pid, signal.SIGKILL)
        ended = program.end(jvm_was_killed=who == "program")
        assert ended.code != 0
    finally:
        if psutil.pid_exists(program.pid):
            program.send(signal.SIGKILL)
    wait_for(lambda: containers() == set())


@needs_python
def test_results_and_metrics_of_a_whole_pipeline(tmp_path: Path) -> None:
    script = """
    from apache_beam.metrics import Metrics
    from apache_beam.testing.util import assert_that, equal_to

    class Count(beam.DoFn):
        def __init__(self):
            self.seen = Metrics.counter("user", "seen")
        def process(self, number):
            self.seen.inc()
            yield number % 3, number

    p = beam.Pipeline(argv=[*OPTIONS, "--spark_master_url=local[2]"])
    sums = p | beam.Create(range(20)) | beam.ParDo(Count()) | beam.CombinePerKey(sum)
    assert_that(sums, equal_to([(0, 63), (1, 70), (2, 57)]))
    result = p.run()
    print(result.wait_until_finish())
    print(result.metrics().query()["counters"][0].committed)
    """
    ended = run(tmp_path, script, *_in(python_image()))
    assert ended.out.splitlines() == ["DONE", "20"], ended.err


def test_the_sweep_spares_who_is_alive() -> None:
    """A container of a process that has gone, one of this process, and one of another machine."""
    ask("create", f"--label={docker.OWNER_LABEL}={docker._Owner.of(os.getpid())}", go_image())
    (ours,) = containers()
    here = docker._Owner.of(os.getpid())
    assert here is not None
    gone = here._replace(started=here.started + 1)
    elsewhere = here._replace(boot="another", pid=1, started=1)
    for owner in (gone, elsewhere):
        ask("create", f"--label={docker.OWNER_LABEL}={owner}", go_image())
    try:
        assert len(docker.sweep("docker")) == 1
        left = [
            json.loads(ask("inspect", each))[0]["Config"]["Labels"][docker.OWNER_LABEL]
            for each in containers()
        ]
        assert sorted(left) == sorted([str(here), str(elsewhere)])
        assert ours in containers()
    finally:
        ask("rm", "--force", *containers())
