"""A file with the classes that Spark loads, from which a JVM starts in less CPU time.

Java calls it a dynamic archive of class data sharing (JEP 350). The program that first finds none
has one made at its end, by ``make_class_archive`` in a separate process with low priority.
"""

import atexit
import contextlib
import errno
import hashlib
import logging
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyspark

from beam_spark_runner.harness.private_folder import private_folder

_LOGGER = logging.getLogger(__name__)
_FIRST_JAVA = 13
_MAX_KEPT = 2
_CONCERNS_ARCHIVES = re.compile(
    r"SharedArchiveFile|ArchiveClassesAtExit|Xshare|SharedClassListFile"
)
_VARIABLES = ("SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")
_QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""A JVM that cannot use an archive continues without it, and prints warnings about it."""


def flags_with_archive(folder: str, java: str, user_conf: Mapping[str, str]) -> list[str]:
    """Return the flags by which a JVM uses the archive in a folder. If there is none, have it made.

    Args:
        folder: The folder of archives; made if it is missing.
        java: The path of the program ``java``.
        user_conf: The user's settings of Spark.

    Returns:
        No flags: there is no archive yet, the folder cannot be used, the user has flags for
        another archive, or this version of Java has none.
    """
    texts = (*user_conf.values(), *(os.environ.get(name, "") for name in _VARIABLES))
    if any(map(_CONCERNS_ARCHIVES.search, texts)):
        return []
    try:
        archive = archive_in(folder, java)
        if _is_trusted(archive):
            with contextlib.suppress(OSError):  # an image of a container may be read-only
                os.utime(archive)  # so that it is not removed as the one that was used longest ago
            return [f"-XX:SharedArchiveFile={archive}", *_QUIET]
    except (OSError, ValueError):
        _LOGGER.debug("no class archive is used", exc_info=True)
        return []
    if not archive.exists():
        _make_at_exit(archive)
    return []


def archive_in(folder: str, java: str) -> Path:
    """Return the path of the archive for a Java and a Spark, whether it exists or not.

    Args:
        folder: The folder of archives; made if it is missing.
        java: The path of the program ``java``.

    Raises:
        OSError, ValueError: The folder cannot be made, others could replace what is in it, Java or
            Spark's jars are not found, or this Java has no such archives.
    """
    place = Path(folder)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = place.stat()
    others = about.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not about.st_mode & stat.S_ISVTX
    if others or about.st_uid not in (os.geteuid(), 0):
        raise PermissionError(errno.EACCES, "others could replace what is in it", folder)
    # A folder of our own in it: the permissions of the user's folder stay as they are.
    return private_folder(place / "spark-classes") / _name(java)


def _name(java: str) -> str:
    """Return the name of the archive for a Java and the jars of the Spark that is used.

    Raises:
        OSError, ValueError: These are not found, or this Java has no such archives.
    """
    release = (Path(os.path.realpath(java)).parent.parent / "release").read_text(errors="replace")
    java_version = re.search(r'JAVA_VERSION="(\d+)', release)
    if java_version is None or int(java_version[1]) < _FIRST_JAVA:
        raise ValueError("this Java cannot write class archives")
    home = Path(os.environ.get("SPARK_HOME") or os.path.dirname(pyspark.__file__))
    digest = hashlib.sha256(f"{os.path.realpath(java)}\n{release}\n{home}\n".encode())
    for jar in sorted((home / "jars").iterdir()):
        about = jar.stat()
        # Java compares whole seconds, too. The layers of an image may keep no more.
        digest.update(f"{jar.name} {about.st_size} {int(about.st_mtime)}\n".encode())
    return f"spark-{pyspark.__version__}-java-{java_version[1]}-{digest.hexdigest()[:16]}.jsa"


def _is_trusted(archive: Path) -> bool:
    """Whether nobody else can have written an archive: a JVM runs the code that is in it."""
    try:
        about = archive.lstat()
    except FileNotFoundError:
        return False
    others = about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid() and not others


_made_at_exit: set[Path] = set()


def _make_at_exit(archive: Path) -> None:
    if archive not in _made_at_exit:
        _made_at_exit.add(archive)
        atexit.register(_start_making, archive, os.getpid())


def _start_making(archive: Path, pid: int) -> None:
    if os.getpid() != pid:  # a forked child, which has inherited the callback
        return
    with contextlib.suppress(OSError):  # another program makes it
        subprocess.Popen(
            [
                *(sys.executable, "-m", "beam_spark_runner.make_class_archive"),
                archive.parent.parent,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def remove_old(archives: Iterable[Path]) -> None:
    """Remove all archives but the two that were used or made last."""
    by_age = sorted(archives, key=lambda archive: archive.stat().st_mtime, reverse=True)
    for archive in by_age[_MAX_KEPT:]:
        archive.unlink(missing_ok=True)
