"""Keeps the files of a pipeline that its program removes before they are sent to executors."""

import dataclasses
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from beam_spark_runner.portable.artifacts import Artifact
from beam_spark_runner.storage.urls import is_url

Packages = Mapping[str, tuple[Artifact, ...]]


def keep_packages(packages: Packages, folder: Path) -> Packages:
    """Link or copy the files of a pipeline.

    Those of an expansion service are in a folder that Beam removes when ``Pipeline.run`` returns.

    Args:
        packages: The sets of files, by their digests.
        folder: Where to keep them; it exists, and lasts as long as the job.

    Returns:
        The same sets, whose temporary files are in the folder. Others stay where they are.
    """
    return {
        digest: tuple(_kept(artifact, folder) for artifact in artifacts)
        for digest, artifacts in packages.items()
    }


def _kept(artifact: Artifact, folder: Path) -> Artifact:
    if is_url(artifact.path) or not _is_temporary(artifact.path):
        return artifact
    copy = folder / artifact.sha256
    if not copy.exists():
        try:
            os.link(Path(artifact.path).resolve(), copy)  # not a link that may dangle later
        except OSError:  # the folder is on another device, or the file is another user's
            shutil.copyfile(artifact.path, copy)
    return dataclasses.replace(artifact, path=str(copy))


def _is_temporary(path: str) -> bool:
    """Whether a file is among the temporary ones, as those that Beam removes are."""
    return Path(path).is_relative_to(tempfile.gettempdir())
