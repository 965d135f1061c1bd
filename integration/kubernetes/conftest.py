"""A Kubernetes of this machine, once for all tests."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from integration.kubernetes.go_programs import CACHE, helm, kubernetes
from integration.kubernetes.machine import mounts_below, processes_with
from integration.kubernetes.pod_images import save_images
from integration.kubernetes.pod_node import Node, start_node
from integration.kubernetes.releases import Release


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """A folder with a short path; it is removed with everything in it."""
    made = Path(tempfile.mkdtemp(prefix="k8s-"))
    made.chmod(0o755)
    yield made
    assert not mounts_below(made)
    assert not processes_with(f"{made}/")
    shutil.rmtree(made)


@pytest.fixture(scope="session")
def go_harnesses(folder: Path) -> str:
    """The image of Go's SDK harnesses; all images are saved in ``folder``."""
    return save_images(folder / "images.tar")


@pytest.fixture(scope="session")
def node(folder: Path, go_harnesses: str) -> Iterator[Node]:
    """A Kubernetes that runs."""
    helm()
    with start_node(folder, kubernetes(), folder / "images.tar") as running:
        yield running
    logs = CACHE / "logs"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir()
    for log in folder.glob("*.log"):
        shutil.copy(log, logs)


@pytest.fixture(scope="module")
def release(node: Node, folder: Path) -> Callable[[str], Release]:
    """Makes a namespace for a release of the chart."""
    return lambda name: Release(node.kubectl, node.kubeconfig, name, folder / "shared" / name)
