"""Makes Python packages for tests, without a build tool: what users stage."""

import base64
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

_SETUP = "from setuptools import setup\nsetup(name={name!r}, version={version!r}, {more})\n"


def wheel(
    folder: Path, name: str, version: str, source: str, *, requires: tuple[str, ...] = ()
) -> Path:
    """Write a wheel of one module."""
    info = f"{name}-{version}.dist-info"
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"]
    lines += [f"Requires-Dist: {each}\n" for each in requires]
    files = {
        f"{name}.py": source,
        f"{info}/METADATA": "".join(lines),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},{_digest(text)},{len(text)}\n" for path, text in files.items())
    file = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(path, text)
    return file


def _digest(text: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
    return f"sha256={digest.decode().rstrip('=')}"


def sdist(folder: Path, name: str, version: str, source: str, *, setup: str = "") -> Path:
    """Write a source distribution of one module. ``setup``: the whole setup.py."""
    files = project(name, version, source, setup=setup)
    files["PKG-INFO"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    path = folder / f"{name}-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for file, text in files.items():
            entry = tarfile.TarInfo(f"{name}-{version}/{file}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return path


def project(
    name: str, version: str, source: str, *, setup: str = "", modules: Mapping[str, str] = {}
) -> dict[str, str]:
    """Return the files of a project of one module and some more."""
    more = f"py_modules={[name, *modules]!r}"
    return {
        "setup.py": setup or _SETUP.format(name=name, version=version, more=more),
        f"{name}.py": source,
        **{f"{each}.py": text for each, text in modules.items()},
    }
