"""Images of SDK harnesses, made on this machine: no registry is asked for anything.

Beam's images have Beam's boot program and, for Python, an interpreter with Beam. The boot programs
come from Go's module proxy; Python's base is a small Debian, which ``debootstrap`` makes (as root).
"""

import functools
import io
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Sequence
from pathlib import Path

import apache_beam

_BUILD = Path(__file__).parents[1] / "build" / "containers"
_BOOT = "opt/apache/beam/boot"
_DEBIAN = "bookworm"  # whose Python is 3.11
_IDLE = ("nice", "-n", "10")
_PACKAGES = "opt/apache/beam/packages"


def why_not(*programs: str) -> str:
    """Return why no containers can be had here; empty: they can.

    Args:
        programs: what is needed beside a Docker engine.
    """
    for program in ("docker", *programs):
        if shutil.which(program) is None:
            return f"needs {program}"
    if "debootstrap" in programs and (os.geteuid() or sys.version_info[:2] != (3, 11)):
        return f"debootstrap needs root, and Debian {_DEBIAN} has Python 3.11"
    asked = subprocess.run(
        ["docker", "version", "--format", "{{.Server.Version}}"],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"no Docker engine answers: {asked.stderr.strip()}" if asked.returncode else ""


@functools.cache
def go_image() -> str:
    """Make an image for Go programs that are linked statically: Beam's boot program, and /tmp."""
    boot = _boot("go")
    image = f"beam-spark-runner-test/go:{apache_beam.__version__}"
    _import(image, [(boot, _BOOT)])
    return image


@functools.cache
def python_image() -> str:
    """Make an image with the Beam of this virtual environment, and without this package."""
    boot = _boot("python")
    image = f"beam-spark-runner-test/python:{apache_beam.__version__}"
    packages = Path(sysconfig.get_path("purelib"))
    _import(image, [(_debian(), ""), (packages, _PACKAGES), (boot, _BOOT)])
    return image


def image_that_fails() -> str:
    """Make an image whose program is none: containers of it end at once."""
    image = "beam-spark-runner-test/fails:1"
    _import(image, [(Path(__file__), _BOOT)])
    return image


def _boot(sdk: str) -> Path:
    """Build Beam's boot program for an SDK, with no library that an image would have to have."""
    folder = _BUILD / f"boot-{sdk}-{apache_beam.__version__}"
    if not (folder / "container").exists():
        package = f"github.com/apache/beam/sdks/v2/{sdk}/container@v{apache_beam.__version__}"
        variables = {**os.environ, "GOBIN": str(folder), "CGO_ENABLED": "0"}
        subprocess.run([*_IDLE, "go", "install", package], env=variables, check=True)
    return folder / "container"


def _debian() -> Path:
    """Make a Debian with Python."""
    base = _BUILD / f"debian-{_DEBIAN}"
    if not base.exists():
        half = base.with_name(f"{base.name}.half")
        shutil.rmtree(half, ignore_errors=True)
        half.parent.mkdir(parents=True, exist_ok=True)
        packages = "--include=python3,ca-certificates"
        command = ["debootstrap", "--variant=minbase", packages, _DEBIAN, str(half)]
        subprocess.run([*_IDLE, *command], check=True)
        shutil.rmtree(half / "var/cache/apt", ignore_errors=True)
        half.rename(base)
    return base


def _import(image: str, content: Sequence[tuple[Path, str]]) -> None:
    """Make an image of files and folders, by their paths in it."""
    changes = (
        f'ENTRYPOINT ["/{_BOOT}"]',
        # Boot programs would make a virtual environment for each harness.
        "ENV RUN_PYTHON_SDK_IN_DEFAULT_ENVIRONMENT=1",
        "ENV PATH=/opt/apache/beam/bin:/usr/bin:/bin",
        f"ENV PYTHONPATH=/{_PACKAGES}",
    )
    command = ["docker", "import", *(f"--change={change}" for change in changes), "-", image]
    with subprocess.Popen(
        [*_IDLE, *command], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as importing:
        assert importing.stdin is not None
        with tarfile.open(fileobj=importing.stdin, mode="w|") as tar:
            for path, name in content:
                tar.add(path, name or ".", filter=_of_packages)
            if "" not in (name for _, name in content):  # no system, which would have them
                _add(tar, "tmp", kind=tarfile.DIRTYPE, mode=0o1777)
                tar.add(_users(), "etc/passwd")  # Go's SDK asks for its user's home
            _add(tar, "opt/apache/beam/bin/python", kind=tarfile.SYMTYPE, link="/usr/bin/python3")
    if importing.returncode:
        raise RuntimeError(f"docker import ended with status {importing.returncode}")


def _of_packages(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out what is large, and no SDK harness needs."""
    needless = (f"{_PACKAGES}/pyspark", f"{_PACKAGES}/mypy", f"{_PACKAGES}/sklearn")
    is_needless = member.name.startswith(needless) or "beam_spark_runner" in member.name
    return None if is_needless else member


def _users() -> Path:
    file = _BUILD / "passwd"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("root:x:0:0:root:/root:/bin/sh\n")
    return file


def _add(
    tar: tarfile.TarFile, name: str, *, kind: bytes, mode: int = 0o755, link: str = ""
) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.mode, member.linkname = kind, mode, link
    tar.addfile(member, io.BytesIO())
