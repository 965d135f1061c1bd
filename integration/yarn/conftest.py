"""A YARN, environments for its containers, and what starts programs on it: once for all tests."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.yarn.applications import Submitter
from integration.yarn.environments import pack_all, pack_bare
from integration.yarn.nodes import Yarn, start_yarn
from integration.yarn.processes import processes_in


@pytest.fixture(scope="session")
def yarn_folder() -> Iterator[Path]:
    """A folder that the user of containers can enter; it is removed with everything in it."""
    folder = Path(tempfile.mkdtemp(prefix="yarn-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)
    assert not processes_in(folder)


@pytest.fixture(scope="session")
def yarn(yarn_folder: Path) -> Iterator[Yarn]:
    """A running YARN."""
    with start_yarn(yarn_folder) as running:
        yield running


@pytest.fixture(scope="session")
def packed() -> dict[str, Path]:
    """The archives of two environments: ``all`` and ``bare``."""
    home = Path(os.environ["YARN_HOME"])
    return {"all": pack_all(home), "bare": pack_bare(home)}


@pytest.fixture(scope="session")
def archives(yarn: Yarn, packed: dict[str, Path]) -> dict[str, str]:
    """The URLs of the same. Hadoop of Maven takes two processes for each file in them."""
    return {name: yarn.upload(path, path.name) for name, path in packed.items()}


@pytest.fixture(scope="session")
def submitter(yarn: Yarn, yarn_folder: Path, packed: dict[str, Path]) -> Submitter:
    """Starts programs. All nodes have Beam and this package, as if it was installed there."""
    environment = yarn_folder / "environment"
    environment.mkdir()
    subprocess.run(["tar", "xzf", packed["all"], "-C", environment], check=True)
    return Submitter(yarn, yarn_folder, environment / "bin" / "python")


@pytest.fixture(autouse=True)
def nothing_is_left(yarn: Yarn) -> Iterator[None]:
    """Each test waits for the end of its applications; then no container runs any more."""
    yield
    left = [each["id"] for each in yarn.applications() if each["state"] == "RUNNING"]
    assert not left, f"still running: {left}"
