"""The packages of a pipeline on an executor: unpacked and installed once, for all its workers.

They are in a folder of the executor, which Spark removes with it; unused folders are removed
earlier, see ``leases``. A folder is never incomplete: it is filled under a lock, and only then
linked to the name by which it is found.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import logging
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

from apache_beam.runners.internal import names
from apache_beam.runners.portability import stager

from beam_spark_runner.core.errors import EnvironmentStartError, InvariantError
from beam_spark_runner.harness.environments.leases import lease, remove_unused
from beam_spark_runner.harness.environments.process import SECRETS, HarnessProcess
from beam_spark_runner.harness.private_folder import private_folder
from beam_spark_runner.portable.artifacts import Artifact, digest_of

_LOGGER = logging.getLogger(__name__)
_READ_BYTES = 1 << 20
_STAGED = "staged"
"""The folder of staged files in the SEMI_PERSISTENT_DIRECTORY of an SDK harness."""
_PTH = "beam_spark_runner_base.pth"


class Archive(Protocol):
    """A tar archive of a set of files, in any storage. Serialised to executors."""

    def open(self) -> BinaryIO:
        """Open the archive for reading, on an executor."""
        ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StagedFiles:
    """A set of files on this machine.

    ``folder`` is the harnesses' semi-persistent directory. ``python`` is the interpreter of a
    virtual environment with the packages among the files; None: there are none. ``leases`` prevent
    both from being removed.
    """

    folder: Path
    artifacts: tuple[Artifact, ...]
    python: Path | None = None
    leases: contextlib.ExitStack = dataclasses.field(
        default_factory=contextlib.ExitStack, compare=False
    )

    def release(self) -> None:
        """End the use of the files."""
        self.leases.close()

    def variables(self) -> dict[str, str]:
        """Return the environment variables of a harness that uses the files."""
        environment = {"SEMI_PERSISTENT_DIRECTORY": str(self.folder)}
        if self.python is not None:
            path = os.pathsep.join([str(self.python.parent), os.environ.get("PATH", os.defpath)])
            environment |= {"VIRTUAL_ENV": str(self.python.parents[1]), "PATH": path}
        return environment


def stage_files(
    artifacts: Sequence[Artifact], archives: Mapping[str, Archive], *, installs: bool
) -> StagedFiles:
    """Unpack a set of files, and install the packages among them, unless that has been done.

    Args:
        artifacts: The files of an environment, identified by their contents.
        archives: The archives of all sets of files of the job, by digest.
        installs: Whether to install the packages in a virtual environment.

    Returns:
        The files, which the caller must release.

    Raises:
        EnvironmentStartError: A package cannot be installed; with pip's last lines. Or the folder
            for packages cannot be used.

    Threads: any; processes of one executor wait for each other.
    """
    root = _root()
    digest = digest_of(artifacts)

    def unpack(folder: Path) -> None:
        _unpack(archives[digest], artifacts, folder / _STAGED)

    try:
        private_folder(root)
    except OSError as error:
        raise EnvironmentStartError(
            f"the packages of the pipeline cannot be unpacked on {platform.node()}: "
            f"{root}: {error.strerror}"
        ) from error
    with contextlib.ExitStack() as leases:

        def once(name: str, make: Callable[[Path], None]) -> Path:
            leases.enter_context(lease(root / name))
            return _once(root / name, make)

        folder = once(f"files-{digest[:32]}", unpack)
        staged = folder / _STAGED
        local = tuple(
            dataclasses.replace(artifact, path=str(staged / artifact.name))
            for artifact in artifacts
        )
        packages = [
            artifact for artifact in local if artifact.name != names.PICKLED_MAIN_SESSION_FILE
        ]
        python = None
        if installs and any(_installs(artifact) for artifact in packages):
            # By interpreter, too: applications with different ones may share the folder.
            known_by = f"{digest_of(packages)}\0{sys.executable}".encode()
            environment = once(
                f"venv-{hashlib.sha256(known_by).hexdigest()[:32]}",
                lambda folder: _install(packages, staged, folder),
            )
            python = environment / "bin" / "python"
        return StagedFiles(folder=folder, artifacts=local, python=python, leases=leases.pop_all())


def _installs(artifact: Artifact) -> bool:
    return artifact.is_requirements or artifact.name in (
        stager.REQUIREMENTS_FILE,
        stager.EXTRA_PACKAGES_FILE,
        stager.WORKFLOW_TARBALL_FILE,
    )


def _root() -> Path:
    """Return the folder of this executor; Spark removes it when the executor ends."""
    of_spark = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    if of_spark and os.path.isdir(of_spark):
        return Path(of_spark) / "beam-packages"
    return Path(tempfile.gettempdir()) / f"beam-packages-{os.getuid()}"


def _once(place: Path, make: Callable[[Path], None]) -> Path:
    """Make a folder unless it exists, and return it.

    A process that waited while another one failed to make it raises the same error, without
    trying again; a later call tries again.
    """
    if place.exists():
        return place.resolve()
    asked_ns = time.time_ns()
    failed = place.with_name(f"{place.name}.failed")
    with _locked(place.with_name(f"{place.name}.lock")):
        if place.exists():
            return place.resolve()
        if failed.exists() and failed.stat().st_mtime_ns >= asked_ns:
            problem, _, output = failed.read_text().partition("\0")
            raise EnvironmentStartError(problem, output)
        remove_unused(place.parent)
        for half in place.parent.glob(f"{place.name}-*"):  # of a process that was killed
            shutil.rmtree(half, ignore_errors=True)
        # At its final path: the scripts of a virtual environment name their interpreter.
        folder = Path(tempfile.mkdtemp(prefix=f"{place.name}-", dir=place.parent))
        try:
            make(folder)
        except EnvironmentStartError as error:
            shutil.rmtree(folder, ignore_errors=True)
            failed.write_text(f"{error.problem}\0{error.output}")
            raise
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        link = folder / ".link"
        link.symlink_to(folder)
        link.rename(place)
        return folder


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock that the kernel releases however this process ends."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _unpack(archive: Archive, artifacts: Sequence[Artifact], folder: Path) -> None:
    """Write the files of ``artifacts``, and no others.

    Raises:
        InvariantError: A file in the archive has another content.
    """
    folder.mkdir()
    with archive.open() as file, tarfile.open(fileobj=file, mode="r:") as tar:
        for artifact in artifacts:
            digest = hashlib.sha256()
            source = tar.extractfile(artifact.name)
            assert source is not None
            with (folder / artifact.name).open("wb") as copy:
                while chunk := source.read(_READ_BYTES):
                    digest.update(chunk)
                    copy.write(chunk)
            if digest.hexdigest() != artifact.sha256:
                raise InvariantError(
                    f"the staged file {artifact.name} does not have the content that was staged"
                )


def _install(packages: Sequence[Artifact], staged: Path, folder: Path) -> None:
    """Make a virtual environment on top of this Python, with the packages in it.

    In the order of Beam's containers: packages that were staged as files replace installed ones of
    any version; then come requirements, and the dependencies of all of them.
    """
    began = time.monotonic()
    python = _make_venv(folder)
    files = [str(staged / name) for name in _package_files(packages, staged)]
    if files:
        _pip(python, staged, "--force-reinstall", "--no-deps", *files)
    arguments: list[str] = []
    for package in packages:
        if package.is_requirements or package.name == stager.REQUIREMENTS_FILE:
            arguments += ["--requirement", package.path]
    arguments += _installed_in(folder)
    if arguments:
        _pip(python, staged, *arguments)
    _LOGGER.info("installed %s in %.1f s", _listed(packages), time.monotonic() - began)


def _package_files(packages: Sequence[Artifact], staged: Path) -> list[str]:
    """Return the packages that were staged as files, in the order of their installation."""
    present = {package.name for package in packages}
    file_names: list[str] = []
    if stager.EXTRA_PACKAGES_FILE in present:
        file_names += (staged / stager.EXTRA_PACKAGES_FILE).read_text().split("\n")
    if stager.WORKFLOW_TARBALL_FILE in present:
        file_names.append(stager.WORKFLOW_TARBALL_FILE)
    return [name for name in file_names if name in present]


def _installed_in(folder: Path) -> list[str]:
    """Return the installed packages as requirements, so that pip installs their dependencies."""
    distributions = importlib.metadata.distributions(path=[str(_site_packages(folder))])
    return sorted(
        f"{distribution.metadata['Name']}=={distribution.version}" for distribution in distributions
    )


def _site_packages(folder: Path) -> Path:
    version = "python{}.{}".format(*sys.version_info[:2])
    return folder / "lib" / version / "site-packages"


def _make_venv(folder: Path) -> Path:
    """Make a virtual environment that falls back on all that this process can import.

    ``--system-site-packages`` does not suffice: it means the packages of the base interpreter,
    not those of the virtual environment in which this process runs.
    """
    try:
        venv.create(folder, symlinks=True, with_pip=importlib.util.find_spec("pip") is None)
    except (OSError, subprocess.CalledProcessError) as error:
        raise EnvironmentStartError(
            f"{sys.executable} on {platform.node()} cannot make a virtual environment (if it has "
            f"no pip, install that there): {error}"
        ) from error
    base = [path for path in sys.path if path]
    # Not by PYTHONPATH, which would come before the packages of the pipeline.
    (_site_packages(folder) / _PTH).write_text(
        "".join(f"import site; site.addsitedir({path!r})\n" for path in base)
    )
    return folder / "bin" / "python"


def _pip(python: Path, staged: Path, *arguments: str) -> None:
    """Install packages, if possible from the staged files alone.

    Beam stages neither the dependencies of extra packages nor build dependencies. So what cannot
    be installed without a package index is installed with the one that pip is configured for.

    Raises:
        EnvironmentStartError: pip failed both without and with the index.
    """
    links = ("--find-links", str(staged))
    problems = []
    for how in (("--no-index", "--no-build-isolation"), ()):
        process = HarnessProcess(
            [
                *(str(python), "-m", "pip", "install", "--disable-pip-version-check"),
                *("--no-input", "--progress-bar=off", *how, *links, *arguments),
            ],
            _variables(),
            lambda: None,
        )
        process.wait()
        if not process.exit_code:
            return
        problems.append(process.tail)
    raise EnvironmentStartError(
        f"pip cannot install the packages of this pipeline on {platform.node()} "
        f"({', '.join(map(os.path.basename, arguments))})",
        "\n".join(["from the staged files:", problems[0], "with a package index:", problems[1]]),
    )


def _variables() -> dict[str, str]:
    """Return this process's environment variables, without Spark's secrets and PYTHONPATH."""
    hidden = (*SECRETS, "PYTHONPATH")
    return {name: value for name, value in os.environ.items() if name not in hidden}


def _listed(artifacts: Iterable[Artifact]) -> str:
    return ", ".join(artifact.name for artifact in artifacts)
