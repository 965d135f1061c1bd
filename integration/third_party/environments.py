"""Makes the environments of groups, and gets the sources of projects whose wheels have no tests."""

import configparser
import hashlib
import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

from integration.third_party.projects import OWN, Project, Source, requirements_of, version_of
from integration.validates_runner.suites import ROOT

ENVIRONMENTS = ROOT / ".venv-third-party"
PYTHON = (3, 11)
"""The requirements are pinned for this version."""


def environment_of(group: str) -> Path:
    """Return the interpreter of a group's environment, which is made if it is missing or old.

    Raises:
        RuntimeError: This interpreter is of another version than the requirements are for.
    """
    if sys.version_info[:2] != PYTHON:
        raise RuntimeError(f"the requirements of {group} are for Python {PYTHON[0]}.{PYTHON[1]}")
    folder = ENVIRONMENTS / group
    python = folder / "bin" / "python"
    done = folder / ".done"
    wanted = _digest(group)
    if not done.exists() or done.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--no-compile"]
        install += ["--requirement", str(requirements_of(group)), "--editable", str(ROOT)]
        subprocess.run(install, check=True)
        done.write_text(wanted)
    return python


def folder_of(project: Project, group: str, python: Path) -> Path:
    """Return the folder that a project's paths of tests are in.

    Args:
        project: One of the group.
        group: The group.
        python: The interpreter of its environment.
    """
    if project.source is Source.OWN:
        return OWN
    if project.source is Source.WHEEL:
        code = "import sysconfig; print(sysconfig.get_path('purelib'))"
        found = subprocess.run(
            [str(python), "-c", code], check=True, capture_output=True, text=True
        )
        return Path(found.stdout.strip())
    version = version_of(project, group)
    folder = python.parents[1] / "sources" / f"{project.name}-{version}"
    if not folder.exists():
        _unpack(python, project.name, version, folder)
    return folder


def _unpack(python: Path, name: str, version: str, folder: Path) -> None:
    """Get a source distribution from PyPI and unpack it; the folder appears when it is whole."""
    folder.parent.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=folder.parent) as temporary:
        download = [str(python), "-m", "pip", "download", "--quiet", "--no-deps"]
        download += ["--no-binary", name, "--dest", temporary, f"{name}=={version}"]
        subprocess.run(download, check=True)
        (archive,) = Path(temporary).glob("*.tar.gz")
        with tarfile.open(archive) as content:
            content.extractall(temporary, filter="data")
        archive.unlink()
        (unpacked,) = Path(temporary).iterdir()
        unpacked.rename(folder)


def _digest(group: str) -> str:
    """Return what changes if other packages are to be installed."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    wanted = requirements_of(group).read_text() + setup["options"]["install_requires"]
    return hashlib.sha256(wanted.encode()).hexdigest()
