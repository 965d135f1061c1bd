"""Files of a pipeline's environments in the folder of a job that can be continued, by content."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.storage.folder import Folder

_READ_BYTES = 1 << 20


def with_stored_files(
    pipeline: beam_runner_api_pb2.Pipeline, make: Callable[[], Folder]
) -> beam_runner_api_pb2.Pipeline:
    """Store the files of a pipeline, and return the pipeline with their names in place of paths.

    Args:
        pipeline: The pipeline, whose files are on this machine.
        make: Makes the folder for the files. Is called only if there are any.

    Raises:
        OSError: A file cannot be read, or the folder cannot be written.
    """

    def stored(path: str) -> str:
        digest = hashlib.sha256()
        with Path(path).open("rb") as content:
            while block := content.read(_READ_BYTES):
                digest.update(block)
        name = digest.hexdigest()
        folder = make()
        if name not in folder.names():
            folder.put(name, Path(path))
        return name

    return _with_paths(pipeline, stored)


def with_fetched_files(
    pipeline: beam_runner_api_pb2.Pipeline, folder: Folder, target: Path
) -> beam_runner_api_pb2.Pipeline:
    """Fetch the files of a stored pipeline, and return the pipeline with their paths.

    Args:
        pipeline: A pipeline that ``with_stored_files`` has returned.
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
