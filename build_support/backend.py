"""Build backend: setuptools, plus two files at the top of site-packages.

The files make Beam know the bare runner name (``beam_spark_runner.import_hook``
says how). setuptools can place neither of them in an editable install, so they
are added to the finished wheel, of either kind, by the rules of the wheel
format alone.
"""

import base64
import hashlib
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (  # noqa: F401  (the rest of the backend's interface)
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

_ROOT = Path(__file__).resolve().parent.parent
_HOOK = _ROOT / "beam_spark_runner" / "import_hook.py"
# A separate name: importing the package itself at start would pin this copy
# of it in programs that run from another checkout.
_HOOK_NAME = "_beam_spark_runner_import_hook"
# For those who find it at the top of site-packages.
_ORIGIN = b"# A copy of beam_spark_runner/import_hook.py, which beam_spark_runner.pth loads.\n"
# site.py executes lines that begin with "import" and complains on stderr about
# those that raise, in every process; so this one does not, whatever is left of us.
_PTH = (
    f"import sys; exec('try:\\n import {_HOOK_NAME} as hook\\n hook.install()\\n"
    "except Exception: pass', {})\n"
)


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """PEP 517."""
    # setuptools packs whatever an earlier build left here, deleted modules too.
    shutil.rmtree(_ROOT / "build" / "lib", ignore_errors=True)
    name = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    return _add_hook(Path(wheel_directory, name))


def build_editable(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """PEP 660."""
    name = build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
    # A plain path. What setuptools writes for a layout like ours is an import hook
    # that loads pathlib, importlib.util and more whenever Python starts.
    path = {"__editable__.beam_spark_runner.pth": f"{_ROOT}\n".encode()}
    return _add_hook(Path(wheel_directory, name), instead_of="__editable__", more=path)


def _add_hook(
    wheel: Path, instead_of: str | None = None, more: Mapping[str, bytes] | None = None
) -> str:
    """Rewrite ``wheel`` with the hook, its ``.pth`` file and their lines in RECORD.

    Args:
        wheel: the file, replaced in place.
        instead_of: files whose names begin so are left out.
        more: further files for the top of site-packages.

    Returns:
        The name of the wheel, as PEP 517 wants it.
    """
    added = {
        f"{_HOOK_NAME}.py": _ORIGIN + _HOOK.read_bytes(),
        "beam_spark_runner.pth": _PTH.encode(),
        **(more or {}),
    }
    bare = wheel.with_suffix(".bare")
    wheel.rename(bare)
    with zipfile.ZipFile(bare) as old, zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            if instead_of and entry.filename.startswith(instead_of):
                continue
            content = old.read(entry)
            if entry.filename.endswith(".dist-info/RECORD"):
                lines = content.decode().splitlines(keepends=True)
                kept = [line for line in lines if not (instead_of and line.startswith(instead_of))]
                content = "".join([*kept, *map(_record_line, added, added.values())]).encode()
            new.writestr(entry, content)
        for name, content in added.items():
            new.writestr(name, content)
    bare.unlink()
    return wheel.name


def _record_line(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"
