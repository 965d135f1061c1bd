"""Files of a pipeline's environments in the folder of a job that can be continued, by content."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.storage.folder import Folder

_READ_BYTES = 1 << 20


def with_names_of_files(
    pipeline: beam_runner_api_pb2.Pipeline,
) -> tuple[beam_runner_api_pb2.Pipeline, dict[str, Path]]:
    """Return a pipeline with the names of its files in place of paths, and the paths by name.

    Args:
        pipeline: The pipeline, whose files are on this machine.

    Raises:
        OSError: A file cannot be read.
    """
    paths: dict[str, Path] = {}

    def named(path: str) -> str:
        digest = hashlib.sha256()
        with Path(path).open("rb") as content:
            while block := content.read(_READ_BYTES):
                digest.update(block)
        paths[digest.hexdigest()] = Path(path)
        return digest.hexdigest()

    return _with_paths(pipeline, named), paths


def store_files(paths: Mapping[str, Path], folder: Folder) -> None:
    """Store files of this machine, unless the folder has them.

    Args:
        paths: Their paths, by name; see ``with_names_of_files``.
        folder: The folder for them.

    Raises:
        OSError: A file cannot be read, or the folder cannot be written.
    """
    there = frozenset(folder.names())
    for name, path in paths.items():
        if name not in there:
            folder.put(name, path)


def with_fetched_files(
    pipeline: beam_runner_api_pb2.Pipeline, folder: Folder, target: Path
) -> beam_runner_api_pb2.Pipeline:
    """Fetch the files of a stored pipeline, and return the pipeline with their paths.

    Args:
        pipeline: A pipeline that ``with_names_of_files`` has returned.
        folder: The folder of the files.
        target: A folder of this machine, for the copies.

    Raises:
        OSError: A file is missing, or cannot be read or written.
    """

    def fetched(name: str) -> str:
        path = target / name
        path.write_bytes(folder.read(name))
        return str(path)

    return _with_paths(pipeline, fetched)


def _with_paths(
    pipeline: beam_runner_api_pb2.Pipeline, new_path_of: Callable[[str], str]
) -> beam_runner_api_pb2.Pipeline:
    """Return a pipeline with other paths of its files."""
    copy = beam_runner_api_pb2.Pipeline()
    copy.CopyFrom(pipeline)
    for environment in copy.components.environments.values():
        for artifact in environment.dependencies:
            if artifact.type_urn == urns.ARTIFACT_FILE:
                file = beam_runner_api_pb2.ArtifactFilePayload.FromString(artifact.type_payload)
                file.path = new_path_of(file.path)
                artifact.type_payload = file.SerializeToString()
    return copy
