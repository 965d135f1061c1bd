"""Images for pods, made on this machine by a Docker engine."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


_QUIET: Any = {"capture_output": True, "text": True, "check": False}


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
    base = debian_image()
    arguments = ("--network=host", "--target=kubernetes", f"--build-arg=BASE_IMAGE={base}")
    file = f"--file={ROOT}/docker/Dockerfile"
    variables = {**os.environ, "DOCKER_BUILDKIT": "1"}
    build = ("nice", "-n", "10", _docker(), "build")
    for command, content in (
        ((*build, *arguments, file, f"--tag={SPARK}", str(ROOT)), None),
        ((*build, "--file=-", f"--tag={PROGRAM}", str(ROOT / "examples" / "streaming")), _CONTENT),
    ):
        subprocess.run(command, env=variables, input=content, text=True, check=True)


def _docker() -> str:
    """Return a client that has BuildKit in it, as those before 23 have, or as a plug-in."""
    folders = [*os.environ["PATH"].split(os.pathsep), "/usr/bin"]
    found = [shutil.which("docker", path=folder) for folder in folders]
    for program in filter(None, found):
        asked = subprocess.run([program, "version", "--format={{.Client.Version}}"], **_QUIET)
        plug_in = subprocess.run([program, "buildx", "version"], **_QUIET)
        if int(asked.stdout.partition(".")[0] or 0) < 23 or not plug_in.returncode:
            return program
    raise RuntimeError("docker has no BuildKit: install its plug-in buildx")


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
