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
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import apache_beam

_BUILD = Path(__file__).parents[1] / "build" / "containers"
_BOOT = "opt/apache/beam/boot"
_DEBIAN = "bookworm"  # whose Python is 3.11
_IDLE = ("nice", "-n", "10")
_PACKAGES = "opt/apache/beam/packages"
_CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
_APT = "etc/apt/apt.conf.d"


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


@functools.cache
def debian_image() -> str:
    """Make an image that has Python with venv, and reaches package registries as this machine does.

    Returns:
        what stands in for ``python:3.11-slim-bookworm``.
    """
    image = f"beam-spark-runner-test/debian:{_DEBIAN}"
    settings = [(path, str(path)[1:]) for path in _settings_of_registries()]
    _import(image, [(_debian("python3-venv"), ""), *settings], _changes_of_registries())
    return image


def _settings_of_registries() -> Iterator[Path]:
    """Yield the files by which this machine's apt and pip find and trust their registries."""
    for name in (_CERTIFICATES, "etc/pip.conf"):
        if (path := Path("/", name)).exists():
            yield path
    yield from (path for path in Path("/", _APT).iterdir() if "Acquire::" in path.read_text())


def _changes_of_registries() -> Iterator[str]:
    yield "ENV PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    for name, value in os.environ.items():
        if name in ("SSL_CERT_FILE", "PIP_CERT", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
            yield f"ENV {name}={value}"


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


def _debian(*more: str) -> Path:
    """Make a Debian with Python, and more packages."""
    base = _BUILD / "-".join(("debian", _DEBIAN, *more))
    if not base.exists():
        half = base.with_name(f"{base.name}.half")
        shutil.rmtree(half, ignore_errors=True)
        half.parent.mkdir(parents=True, exist_ok=True)
        packages = f"--include={','.join(('python3', 'ca-certificates', *more))}"
        command = ["debootstrap", "--variant=minbase", packages, _DEBIAN, str(half)]
        subprocess.run([*_IDLE, *command], check=True)
        shutil.rmtree(half / "var/cache/apt", ignore_errors=True)
        half.rename(base)
    return base


_OF_HARNESSES = (
    f'ENTRYPOINT ["/{_BOOT}"]',
    # Boot programs would make a virtual environment for each harness.
    "ENV RUN_PYTHON_SDK_IN_DEFAULT_ENVIRONMENT=1",
    "ENV PATH=/opt/apache/beam/bin:/usr/bin:/bin",
    f"ENV PYTHONPATH=/{_PACKAGES}",
)


def _import(
    image: str, content: Sequence[tuple[Path, str]], changes: Iterable[str] = _OF_HARNESSES
) -> None:
    """Make an image of files and folders, by their paths in it; ``changes``: as in a Dockerfile."""
    command = ["docker", "import", *(f"--change={change}" for change in changes), "-", image]
    with subprocess.Popen(
        [*_IDLE, *command], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as importing:
        assert importing.stdin is not None
        with tarfile.open(fileobj=importing.stdin, mode="w|") as tar:
            replaced = {f"./{name}" for _, name in content}  # a path must not come twice
            for path, name in content:
                tar.add(path, name or ".", filter=lambda member: _wanted(member, replaced))
            if "" not in (name for _, name in content):  # no system, which would have them
                _add(tar, "tmp", kind=tarfile.DIRTYPE, mode=0o1777)
                tar.add(_users(), "etc/passwd")  # Go's SDK asks for its user's home
            _add(tar, "opt/apache/beam/bin/python", kind=tarfile.SYMTYPE, link="/usr/bin/python3")
    if importing.returncode:
        raise RuntimeError(f"docker import ended with status {importing.returncode}")


def _wanted(member: tarfile.TarInfo, replaced: Collection[str]) -> tarfile.TarInfo | None:
    """Leave out what other files replace, and what is large, and no SDK harness needs."""
    if member.name in replaced:
        return None
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
