"""Images for pods, made on this machine by a Docker engine."""

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from integration.compose import compose_command
from integration.container_engine import DOCKER
from integration.container_images import debian_image, go_image
from integration.kubernetes.go_programs import CACHE, ROOT, pause
from integration.kubernetes.machine import Processes, run
from integration.waiting import wait_until

PAUSE = "beam-spark-runner-test/pause:1"
SPARK = "beam-spark-runner-test/kubernetes"
PROGRAM = "beam-spark-runner-test/word-counts"
"""The same with a streaming pipeline, as users make theirs."""
_CONTENT = f"""\
FROM {SPARK}
COPY word_counts.py /opt/word_counts.py
"""


def save_images(archive: Path) -> str:
    """Make all images, and save them in a file.

    Returns:
        the name of that of Go's SDK harnesses.
    """
    with engine():
        _build()
        _import_pause()
        go = go_image()
        run("docker", "save", "--output", str(archive), PAUSE, SPARK, PROGRAM, go)
    return go


@contextlib.contextmanager
def engine() -> Iterator[None]:
    """Have a Docker engine: this machine's or, if none answers, one that ends with the context."""
    if not DOCKER.why_not():
        yield
        return
    data = CACHE / "docker"
    data.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="beam-docker-") as folder:
        processes = Processes(CACHE)
        address = f"unix://{folder}/docker.sock"
        previous = os.environ.get("DOCKER_HOST")
        os.environ["DOCKER_HOST"] = address
        try:
            processes.start(
                "dockerd",
                [
                    *("dockerd", f"--host={address}", f"--data-root={data}", "--bridge=none"),
                    *("--iptables=false", "--ip6tables=false", f"--exec-root={folder}/exec"),
                    f"--pidfile={folder}/docker.pid",
                ],
            )

            def answers() -> bool:
                processes.check()
                return not DOCKER.why_not()

            wait_until(answers, "a Docker engine", poll_s=0.3)
            yield
        finally:
            processes.close()
            if previous is None:
                del os.environ["DOCKER_HOST"]
            else:
                os.environ["DOCKER_HOST"] = previous


def _build() -> None:
    """Have Compose build the images, as it does for docker/compose.yaml."""
    runner = {
        "context": str(ROOT),
        "dockerfile": "docker/Dockerfile",
        "target": "kubernetes",
        "network": "host",  # over which this machine reaches registries of packages
        "args": {"BASE_IMAGE": debian_image()},
    }
    program = {"context": str(ROOT / "examples" / "streaming"), "dockerfile_inline": _CONTENT}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        images = ((SPARK, runner), (PROGRAM, program))
        for number, (image, build) in enumerate(images):
            file.seek(0)
            file.truncate()
            json.dump({"services": {f"image-{number}": {"image": image, "build": build}}}, file)
            file.flush()
            run("nice", "-n", "10", *compose_command(), f"--file={file.name}", "build")


def _import_pause() -> None:
    program = pause()
    tar = subprocess.run(
        ["tar", "--create", "--directory", program.parent, program.name],
        stdout=subprocess.PIPE,
        check=True,
    )
    subprocess.run(
        ["docker", "import", '--change=ENTRYPOINT ["/pause"]', "-", PAUSE],
        input=tar.stdout,
        stdout=subprocess.DEVNULL,
        check=True,
    )
