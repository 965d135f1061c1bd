"""Images of SDK harnesses, made on this machine: no registry is asked for anything.

Beam's images have Beam's boot program and, for Python, an interpreter with Beam. The boot programs
come from Go's module proxy; Python's base is a small Debian, which ``debootstrap`` makes (as root).
"""

import functools
import hashlib
import importlib.metadata
import io
import os
import shutil
import subprocess
import sysconfig
import tarfile
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import apache_beam

from integration.container_engine import DEBIAN, DOCKER, Engine

_BUILD = Path(__file__).parents[1] / "build" / "containers"
_BOOT = "opt/apache/beam/boot"
_IDLE = ("nice", "-n", "10")
_PACKAGES = "opt/apache/beam/packages"
_CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
_APT = "etc/apt/apt.conf.d"


@functools.cache
def go_image(engine: Engine = DOCKER) -> str:
    """Make an image for Go programs that are linked statically: Beam's boot program, and /tmp."""
    boot = _boot("go")
    image = f"beam-spark-runner-test/go:{apache_beam.__version__}"
    _import(engine, image, [(boot, _BOOT)])
    return image


@functools.cache
def python_image(engine: Engine = DOCKER) -> str:
    """Make an image with the Beam of this virtual environment, and without this package.

    Its boot program starts the interpreter at once. One that the engine has of an earlier call is
    taken, if the same packages were installed then.
    """
    image = f"beam-spark-runner-test/python:{apache_beam.__version__}-{_packages_digest()}"
    if not engine.has(image):
        boot = _boot("python")
        packages = Path(sysconfig.get_path("purelib"))
        base = _debian("python3-venv")
        _import(engine, image, [(base, ""), (packages, _PACKAGES), (boot, _BOOT)])
    return image


@functools.cache
def python_image_with_venvs(engine: Engine = DOCKER) -> str:
    """Make such an image whose boot program makes a virtual environment first, as Beam's own do."""
    base = python_image(engine)
    image = f"{base}-venvs"
    container = engine.ask("create", base, "--id=never-started")
    engine.ask("commit", "--change=ENV RUN_PYTHON_SDK_IN_DEFAULT_ENVIRONMENT=", container, image)
    engine.ask("rm", container)
    return image


@functools.cache
def python_image_of_another_beam(engine: Engine, version: str) -> str:
    """Make such an image that says that its Beam is of another version."""
    base = python_image(engine)
    image = f"{base}-{version}"
    folder = next(Path(sysconfig.get_path("purelib")).glob("apache_beam-*.dist-info"))
    lines = (folder / "METADATA").read_text().splitlines(keepends=True)
    with tempfile.NamedTemporaryFile("w", suffix="METADATA") as file:
        file.writelines(
            f"Version: {version}\n" if line.startswith("Version: ") else line for line in lines
        )
        file.flush()
        container = engine.ask("create", base, "--id=never-started")
        engine.ask("cp", file.name, f"{container}:/{_PACKAGES}/{folder.name}/METADATA")
    engine.ask("commit", container, image)
    engine.ask("rm", container)
    return image


def _packages_digest() -> str:
    """Return what differs if an image of Python would have something else in it."""
    found = sorted(f"{each.name} {each.version}" for each in importlib.metadata.distributions())
    content = "\n".join((*found, Path(__file__).read_text()))
    return hashlib.sha256(content.encode()).hexdigest()[:12]


@functools.cache
def debian_image() -> str:
    """Make an image that has Python with venv, and reaches package registries as this machine does.

    Returns:
        what stands in for ``python:3.11-slim-bookworm``.
    """
    image = f"beam-spark-runner-test/debian:{DEBIAN}"
    settings = [(path, str(path)[1:]) for path in _settings_of_registries()]
    content = [(_debian("python3-venv"), ""), *settings]
    _import(DOCKER, image, content, _changes_of_registries())
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


def image_that_fails(engine: Engine = DOCKER) -> str:
    """Make an image whose program is none: containers of it end at once."""
    image = "beam-spark-runner-test/fails:1"
    _import(engine, image, [(Path(__file__), _BOOT)])
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
    base = _BUILD / "-".join(("debian", DEBIAN, *more))
    if not base.exists():
        half = base.with_name(f"{base.name}.half")
        shutil.rmtree(half, ignore_errors=True)
        half.parent.mkdir(parents=True, exist_ok=True)
        packages = f"--include={','.join(('python3', 'ca-certificates', *more))}"
        command = ["debootstrap", "--variant=minbase", packages, DEBIAN, str(half)]
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
    engine: Engine,
    image: str,
    content: Sequence[tuple[Path, str]],
    changes: Iterable[str] = _OF_HARNESSES,
) -> None:
    """Make an image of files and folders, by their paths in it; ``changes``: as in a Dockerfile."""
    command = [engine.program, "import", *(f"--change={change}" for change in changes), "-", image]
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
        raise RuntimeError(f"{engine.program} import ended with status {importing.returncode}")


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
