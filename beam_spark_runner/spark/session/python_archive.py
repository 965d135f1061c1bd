"""Packs the packages of the program's environment into one archive for executors.

Executors bring the interpreter, PySpark and pyarrow; all other packages come out of the archive,
in which ``bin/python`` is a script that starts that interpreter with them.
"""

import atexit
import errno
import functools
import hashlib
import importlib.metadata
import io
import json
import logging
import os
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from beam_spark_runner.core import version
from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.core.rendering import first_line
from beam_spark_runner.harness.private_folder import private_folder
from beam_spark_runner.spark.session.container import folder_of_application
from beam_spark_runner.state.locked_folder import LockedFolder

_LOGGER = logging.getLogger(__name__)
_OURS = "beam-spark-runner"
_OF_SPARK = frozenset({"pyspark", "pyspark-client", "pyspark-connect", "py4j"})
"""What Spark puts on its workers' path itself, in the cluster's version."""
_PACKAGES = "packages"
_KEPT_S = 30 * 86_400.0
_SCRIPT = """\
#!/bin/sh
here=$(cd "$(dirname "$0")/.." && pwd -P)
export PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$here/%s"
for python in %s; do
  [ -x "$python" ] && exec "$python" "$@"
done
echo "no Python of this executor is among: %s" >&2
exit 127
"""


@dataclass(frozen=True, slots=True)
class _File:
    source: Path
    target: str  # below the folder of packages


def pack_environment(pythons: Sequence[str], cache: Path | None = None) -> Path:
    """Return an archive of the packages that are installed here, from the cache if it is there.

    Args:
        pythons: the executors' interpreters: the first one that a machine has is used there.
        cache: the folder of archives; None: the user's, or if that cannot be written, one that ends
            with the application. Archives unused for 30 days are removed.

    Raises:
        OptionsError: some package is not installed in a way that can be sent, or the archive cannot
            be written.
    """
    distributions, digest = _installed(), hashlib.sha256(repr(sorted(pythons)).encode())
    own_files = list(_own_files())
    for package in distributions:
        digest.update(
            f"{package.metadata['Name']} {package.version} {package.read_text('RECORD')}".encode()
        )
    for file in own_files:
        digest.update(file.target.encode() + b"\0" + file.source.read_bytes())
    try:
        cache = _made(cache) if cache else _writable_cache()
        path = cache / f"environment-{digest.hexdigest()[:32]}.tar.gz"
        for old in cache.glob("environment-*.tar.gz"):
            if old != path and time.time() - old.stat().st_mtime > _KEPT_S:
                old.unlink(missing_ok=True)
        if path.exists():
            os.utime(path)
            return path
        began = time.monotonic()
        _write(path, [*own_files, *_files(distributions)], pythons)
    except OSError as error:
        raise OptionsError(
            "executor_environment",
            f"the packages of this environment cannot be packed: {first_line(error)}. The "
            "environment variable XDG_CACHE_HOME may name a folder for them, with some hundred MB",
        ) from error
    _LOGGER.info(
        "packed the packages of this environment in %.0f s: %d MB",
        time.monotonic() - began,
        path.stat().st_size >> 20,
    )
    return path


def _writable_cache() -> Path:
    """Return the user's cache folder; if it cannot be written, one that ends with the application.

    Containers of YARN have a home that is not there, unless YARN is set up otherwise.

    Raises:
        OSError: neither can be written.
    """
    try:
        return _made(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / _OURS)
    except (OSError, RuntimeError) as error:  # the latter if the user has no home
        folder = folder_of_application() or _temporary_folder().path
        _LOGGER.info("the packages are packed in %s: %s", folder, error)
        return folder


def _made(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    return folder


@functools.cache
def _temporary_folder() -> LockedFolder:
    """Make a folder for this process; if it is killed, the next one that makes one removes it."""
    root = private_folder(Path(tempfile.gettempdir()) / f"beam-spark-{os.geteuid()}")
    folder, maker = LockedFolder(root, "archives-"), os.getpid()

    def remove() -> None:
        if os.getpid() == maker:  # not a forked child, which has inherited the callback
            folder.remove()

    atexit.register(remove)
    return folder


def _installed() -> list[importlib.metadata.Distribution]:
    """Return the distributions to send, without this package; the first one of a name counts.

    Raises:
        OptionsError: see ``pack_environment``.
    """
    by_name: dict[str, importlib.metadata.Distribution] = {}
    for package in importlib.metadata.distributions():
        name = (package.metadata["Name"] or "").lower().replace("_", "-")
        if name and name not in _OF_SPARK and name != _OURS:
            by_name.setdefault(name, package)
    problems = [
        f"{name} ({problem})"
        for name, package in sorted(by_name.items())
        if (problem := _problem(package))
    ]
    if problems:
        raise OptionsError(
            "executor_environment",
            "this environment cannot be sent to executors, because of these packages, whose files "
            f"no installer has copied into it: {', '.join(problems)}. Install them normally, or "
            "send them with --extra_package and install Beam for the executors' Python",
        )
    return [package for _, package in sorted(by_name.items())]


def _problem(distribution: importlib.metadata.Distribution) -> str | None:
    where = json.loads(distribution.read_text("direct_url.json") or "{}")
    if where.get("dir_info", {}).get("editable"):
        return f"editable, from {where.get('url')}"
    if distribution.read_text("RECORD") is None:
        return "without a list of its files"
    return None


def _files(distributions: Sequence[importlib.metadata.Distribution]) -> Iterator[_File]:
    for package in distributions:
        for file in package.files or ():
            source = Path(str(package.locate_file(file)))
            # Scripts and data outside of the folder of packages name paths of this machine.
            if ".." not in file.parts and source.is_file():
                yield _File(source, file.as_posix())


def _own_files() -> Iterator[_File]:
    """Yield the files of this package as it is imported: in development it is not installed."""
    root = Path(version.__file__).parents[1]
    for source in sorted(root.rglob("*")):
        if source.is_file() and "__pycache__" not in source.parts:
            yield _File(source, source.relative_to(root.parent).as_posix())


def _write(path: Path, files: Sequence[_File], pythons: Sequence[str]) -> None:
    """Write the archive, gzipped: Spark unpacks plain tar files without their permissions."""
    quoted = " ".join("'" + python.replace("'", "'\\''") + "'" for python in pythons)
    script = (_SCRIPT % (_PACKAGES, quoted, quoted.replace("'", ""))).encode()
    handle, temporary = tempfile.mkstemp(prefix=path.name, dir=path.parent)
    try:
        with (
            os.fdopen(handle, "wb") as file,
            tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as tar,
        ):
            entry = tarfile.TarInfo("bin/python")
            entry.size, entry.mode, entry.mtime = len(script), 0o755, int(time.time())
            tar.addfile(entry, io.BytesIO(script))
            targets: set[str] = set()
            for packed in files:
                if packed.target not in targets:
                    targets.add(packed.target)
                    # With its modification time, so that the bytecode next to it is valid.
                    tar.add(packed.source, f"{_PACKAGES}/{packed.target}", recursive=False)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
