"""The compose file of ``docker/`` on a real Docker engine, with images that this machine makes.

Environment variables that the compose file reads are obeyed: with ``BASE_IMAGE`` and
``GO_SDK_IMAGE``, these images are taken, wherever Docker has them from.
"""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from integration.container_engine import DOCKER
from integration.container_images import debian_image, go_image

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docker" / "compose.yaml"
_SERVICE = "com.docker.compose.service"  # a label
_PROJECT = "beam-spark-runner-test"
_MODULE = "github.com/docker/compose/v2@v2.35.1"
"""Compose is built of it where Docker has none. The last one that builds images by itself."""
_IDLE = ("nice", "-n", "10")
_BUILDS_WITHIN_S = 3_600.0
_ANSWERS_WITHIN_S = 300.0


class Composed:
    """The containers of the compose file, while they are up. Made by ``compose_up``."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str]) -> None:
        self._command = command
        self.variables = variables

    def up(self) -> None:
        """Build what is not built, start what does not run, and wait until all is healthy."""
        self.compose("up", "--build", "--detach", "--wait", timeout_s=_BUILDS_WITHIN_S)

    def compose(self, *arguments: str, timeout_s: float = _ANSWERS_WITHIN_S) -> str:
        """Run ``docker compose``; return what it says on stdout.

        Raises:
            RuntimeError: it failed; with its words.
        """
        done = subprocess.run(
            [*self._command, *arguments],
            env=dict(self.variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"docker compose {' '.join(arguments)}: {done.stderr[-4000:]}")
        return done.stdout

    def kill(self, service: str) -> None:
        """Send SIGKILL to all that runs in the container of a service."""
        self.compose("kill", "--signal=SIGKILL", service)

    def run_in(self, service: str, *command: str) -> str:
        """Run a command in the container of a service; return its output."""
        return self.compose("exec", "--no-TTY", service, *command)

    def inspect(self) -> dict[str, Any]:
        """Return what Docker says of each container, by its service."""
        ids = self.compose("ps", "--all", "--quiet").split()
        found = subprocess.run(["docker", "inspect", *ids], check=True, capture_output=True)
        all_of_them = json.loads(found.stdout)
        return {each["Config"]["Labels"][_SERVICE]: each for each in all_of_them}

    def processes(self, service: str) -> list[str]:
        """Return the command lines of all that runs in the container of a service."""
        id_ = self.inspect()[service]["Id"]
        top = subprocess.run(
            ["docker", "top", id_, "-o", "pid,uid,args"], check=True, capture_output=True
        )
        return top.stdout.decode().splitlines()[1:]

    def master(self) -> Any:
        """Return what Spark's master says of its workers and applications."""
        url = f"http://127.0.0.1:{self.variables['SPARK_UI_PORT']}/json/"
        with urllib.request.urlopen(url, timeout=_ANSWERS_WITHIN_S) as answer:
            return json.load(answer)


@contextlib.contextmanager
def compose_up(variables: Mapping[str, str]) -> Iterator[Composed]:
    """Build the images, start the containers, and remove them and their volumes at the end.

    Args:
        variables: what the compose file reads.

    Raises:
        RuntimeError: something is missing here, or has failed.
    """
    if missing := DOCKER.why_not("go", *(() if "BASE_IMAGE" in os.environ else ("debootstrap",))):
        raise RuntimeError(f"the compose test cannot run: {missing}")
    with tempfile.TemporaryDirectory(prefix="beam-compose-") as folder:
        # Builds reach package registries over the network of this machine.
        more = Path(folder) / "network.yaml"
        services = {
            name: {"build": {"network": "host"}}
            for name in ("spark-master", "spark-worker-1", "spark-worker-2", "job-server")
        }
        more.write_text(json.dumps({"services": services}))  # JSON is YAML, too
        files = (f"--file={FILE}", f"--file={more}")
        composed = Composed(
            [*_compose(), f"--project-name={_PROJECT}", *files], _variables(variables)
        )
        composed.compose("down", "--volumes", "--remove-orphans", "--timeout=1")
        try:
            composed.up()
            yield composed
        finally:
            with contextlib.suppress(RuntimeError):
                _LOG.write_text(composed.compose("logs", "--no-color"))
            composed.compose("down", "--volumes", "--remove-orphans")


_LOG = ROOT / "build" / "compose.log"
"""What all containers have written, for whoever asks why a test has failed."""


def _variables(given: Mapping[str, str]) -> dict[str, str]:
    images = {
        "SPARK_IMAGE": "beam-spark-runner-test/spark",
        "JOB_SERVER_IMAGE": "beam-spark-runner-test/job-server",
    }
    variables = {**images, **given, **os.environ}
    variables.setdefault("SPARK_UI_PORT", "8080")
    if "BASE_IMAGE" not in variables:
        variables["BASE_IMAGE"] = debian_image()
    if "GO_SDK_IMAGE" not in variables:
        variables["GO_SDK_IMAGE"] = go_image()
    return variables


def _compose() -> list[str]:
    """Return how Docker Compose is called here; it is built if there is none."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) is None:
            continue
        version = [*command, "version", "--short"]
        asked = subprocess.run(version, capture_output=True, text=True, check=False)
        if asked.returncode == 0 and not asked.stdout.startswith("1."):  # which reads other files
            return command
    program = ROOT / "build" / "containers" / _MODULE.replace("/", "-")
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        found = subprocess.run(
            ["go", "mod", "download", "-json", _MODULE], check=True, capture_output=True
        )
        build = ["go", "build", "-trimpath", "-o", str(program), "./cmd"]
        sources = json.loads(found.stdout)["Dir"]
        without_c = {**os.environ, "CGO_ENABLED": "0"}
        subprocess.run([*_IDLE, *build], cwd=sources, env=without_c, check=True)
    return [str(program)]
