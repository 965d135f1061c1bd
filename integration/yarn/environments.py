"""Python environments for containers, as archives that users make with venv-pack."""

import hashlib
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from integration.yarn.needs import python_for_containers

_ROOT = Path(__file__).parents[2]
_OF_SPARK = ("pyspark", "py4j")
"""What Spark itself sends to containers."""
_SOURCES = ("build_support", "beam_spark_runner")
_FILES = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in")
_OURS = "beam-spark-runner"


def pack_all(home: Path) -> Path:
    """Pack an environment with Beam and this package, in the versions of this one.

    Args:
        home: where environments and archives are kept for the next tests.

    Returns:
        The archive.
    """
    name = f"all-{_version('apache-beam')}"
    archive = home / f"{name}-{_digest_of_sources()}.tar.gz"
    if archive.exists():
        return archive
    for old in home.glob(f"{name}-*.tar.gz"):
        old.unlink()
    requirements = [
        line
        for line in importlib.metadata.requires(_OURS) or ()
        if "extra ==" not in line and not line.startswith(_OF_SPARK)
    ]
    venv = _made(home / name, [*requirements, "apache-beam[hadoop]"])
    with tempfile.TemporaryDirectory() as folder:
        for name in _SOURCES:
            hidden = shutil.ignore_patterns("__pycache__")
            shutil.copytree(_ROOT / name, Path(folder) / name, ignore=hidden)
        for name in _FILES:
            shutil.copy(_ROOT / name, folder)
        _pip(venv, "--no-deps", "--force-reinstall", folder)
    return _packed(venv, archive)


def pack_bare(home: Path) -> Path:
    """Pack an environment with pyarrow alone, as ``pack_all`` does."""
    name = f"bare-{_version('pyarrow')}"
    archive = home / f"{name}.tar.gz"
    return archive if archive.exists() else _packed(_made(home / name, ["pyarrow"]), archive)


def _digest_of_sources() -> str:
    digest = hashlib.sha256()
    for file in sorted([*(_ROOT / "beam_spark_runner").rglob("*"), _ROOT / "setup.cfg"]):
        if file.is_file() and "__pycache__" not in file.parts:
            digest.update(file.relative_to(_ROOT).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def _made(venv: Path, requirements: Sequence[str]) -> Path:
    ready = venv / ".ready"
    if not ready.exists():
        python = python_for_containers()
        if python is None:
            raise RuntimeError("containers have no Python: python -m integration.yarn.needs")
        subprocess.run([python, "-m", "venv", "--clear", str(venv)], check=True)
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
            constraints.writelines(_pins())
            constraints.flush()
            _pip(venv, "--constraint", constraints.name, *requirements)
        ready.touch()
    return venv


def _pins() -> list[str]:
    """Return the versions of all that is installed here, as constraints of pip."""
    return sorted(
        f"{each.metadata['Name']}=={each.version}\n"
        for each in importlib.metadata.distributions()
        if re.sub("_", "-", each.metadata["Name"].lower()) != _OURS
    )


def _pip(venv: Path, *arguments: str) -> None:
    command = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-compile"]
    subprocess.run([*command, *arguments], check=True)


def _packed(venv: Path, archive: Path) -> Path:
    half = archive.with_name(f"half-{archive.name}")
    command = [sys.executable, "-m", "venv_pack", "--quiet", "--force", "--compress-level", "1"]
    subprocess.run([*command, "--prefix", str(venv), "--output", str(half)], check=True)
    half.chmod(0o644)
    return half.rename(archive)


def _version(name: str) -> str:
    return f"{importlib.metadata.version(name)}-py{sys.version_info[1]}"
