"""What a suite needs whose user code runs in containers: an image, and a folder that both see."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from integration.container_engine import DOCKER
from integration.container_images import python_image

IMAGE = "CONFORMANCE_IMAGE"
OTHER_IMAGE = "CONFORMANCE_OTHER_IMAGE"
"""The same image by another name, so that steps of an expansion service have other containers."""
EXECUTABLE = "CONFORMANCE_DOCKER"


@contextlib.contextmanager
def variables_of_containers() -> Iterator[dict[str, str]]:
    """Yield the environment variables of a suite's process: an image, and what runs containers.

    Tests and their matchers leave files for each other in the folder for temporary files. That of
    the process is in all of its containers, too, by the same path.

    Raises:
        RuntimeError: there can be no containers here, and why.
    """
    if missing := DOCKER.why_not("go", "debootstrap"):
        raise RuntimeError(f"suites cannot run in containers: {missing}")
    image = python_image()
    other = f"{image}-of-an-expansion-service"
    DOCKER.ask("tag", image, other)
    with tempfile.TemporaryDirectory(prefix="conformance-") as name:
        folder = Path(name) / "tmp"
        folder.mkdir()
        docker = DOCKER.sharing(folder, Path(name) / "docker")
        yield {"TMPDIR": str(folder), IMAGE: image, OTHER_IMAGE: other, EXECUTABLE: docker}
