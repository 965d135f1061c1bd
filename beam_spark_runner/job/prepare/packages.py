"""The packages and files of a pipeline, from the client's options to archives for executors."""

import contextlib
import dataclasses
import hashlib
import io
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.stager import Stager
from apache_beam.transforms.environments import PyPIArtifactRegistry

from beam_spark_runner.core.errors import OptionsError, StagingError
from beam_spark_runner.core.ids import EnvironmentId
from beam_spark_runner.core.rendering import first_line
from beam_spark_runner.engine.shared_file import SharedFile, share_file
from beam_spark_runner.graph.model import Graph
from beam_spark_runner.portable.artifacts import Artifact, artifacts_of, digest_of, to_proto
from beam_spark_runner.portable.environment_facts import changed_environments
from beam_spark_runner.spark.driver.gather import SHARED_BYTES
from beam_spark_runner.storage.folder import Folder
from beam_spark_runner.storage.folder_at import folder_at
from beam_spark_runner.storage.urls import is_url

_READ_BYTES = 1 << 20
_ASKING = (
    "requirements_file",
    "setup_file",
    "extra_packages",
    "files_to_stage",
    "save_main_session",
)


def asks_for_packages(options: PipelineOptions) -> bool:
    """Whether the options name packages or files to stage. If not, Beam's stager is not needed."""
    setup = options.view_as(SetupOptions)
    return bool(_required()) or any(getattr(setup, name) for name in _ASKING)


def _required() -> list[str]:
    return ["".join(parts) for parts in PyPIArtifactRegistry.get_artifacts()]


def collect_packages(options: PipelineOptions, folder: Path) -> Sequence[Any]:
    """Have Beam's stager build and download the packages that its options name.

    Args:
        options: The options of the pipeline.
        folder: The folder to write to; it must exist until the pipeline runs.

    Returns:
        Beam's ArtifactInformation protos, for an environment.

    Raises:
        StagingError: A file is missing, or a package cannot be built or downloaded.
    """
    try:
        return list(
            Stager.create_job_resources(
                options,
                str(folder),
                pypi_requirements=_required(),
                # It would take a second, to write a list that only people read.
                log_submission_env_dependencies=False,
            )
        )
    except (OSError, RuntimeError) as error:
        raise StagingError(str(error)) from error


def identify_packages(graph: Graph) -> tuple[Graph, Mapping[str, tuple[Artifact, ...]]]:
    """Hash the files that the environments of a pipeline depend on.

    Args:
        graph: The graph before all passes.

    Returns:
        A graph whose dependencies have hashes and no paths, so that environments with the same
        files are equal; and the files of each environment that has any, by the digest of the set.

    Raises:
        StagingError: A file cannot be read, or its name is not unique.
        UnsupportedFeatureError: A dependency is not a file, or its name is no file name.
    """
    artifacts_of_set: dict[str, tuple[Artifact, ...]] = {}

    def identify(_: EnvironmentId, environment: beam_runner_api_pb2.Environment) -> None:
        if not environment.dependencies:
            return
        artifacts = tuple(
            dataclasses.replace(artifact, sha256=_sha256(artifact))
            for artifact in artifacts_of(environment)
        )
        _check_names(artifacts)
        artifacts_of_set[digest_of(artifacts)] = artifacts
        del environment.dependencies[:]
        environment.dependencies.extend(
            to_proto(dataclasses.replace(artifact, path="")) for artifact in artifacts
        )

    return changed_environments(graph, identify), artifacts_of_set


def _check_names(artifacts: Sequence[Artifact]) -> None:
    """Raise a StagingError for names of two different files."""
    contents: dict[str, str] = {}
    for artifact in artifacts:
        if contents.setdefault(artifact.name, artifact.sha256) != artifact.sha256:
            raise StagingError(
                f"two files of one environment are staged as {artifact.name!r}, with different "
                "contents: rename one of them"
            )


def _sha256(artifact: Artifact) -> str:
    if is_url(artifact.path) and artifact.sha256:
        return artifact.sha256  # a job server has stored it, and compared its content
    digest = hashlib.sha256()
    try:
        with open(artifact.path, "rb") as file:
            while chunk := file.read(_READ_BYTES):
                digest.update(chunk)
    except OSError as error:
        raise StagingError(f"{artifact.path}: {error.strerror}") from error
    return digest.hexdigest()


def share_packages(
    sets: Mapping[str, tuple[Artifact, ...]],
    job_id: str,
    folder: Folder | None,
    share: Callable[[Path], SharedFile],
) -> Mapping[str, SharedFile]:
    """Make the files available to executors, each set as one tar archive.

    Args:
        sets: The result of ``identify_packages``.
        job_id: The id of the job, for the names of archives.
        folder: The folder that executors can read. None: there is none; Spark sends the archives.
        share: See ``SessionHandle.share``.

    Returns:
        The archive of each set, by the digest of the set.

    Raises:
        OptionsError: An archive is too large for Spark to send, and there is no folder.
    """
    shared: dict[str, SharedFile] = {}
    with tempfile.TemporaryDirectory(prefix="beam-") as temp:
        for digest, artifacts in sets.items():
            path = Path(temp) / f"beam-packages-{job_id}-{digest[:16]}.tar"
            _write_archive(artifacts, path)
            size = path.stat().st_size
            if folder is None and size > SHARED_BYTES:
                raise OptionsError(
                    "temp_location",
                    f"the packages of this pipeline have {size} bytes, which exceeds the limit of "
                    f"{SHARED_BYTES} for sending them to executors over the network; name storage "
                    "that all executors can read",
                )
            shared[digest] = share_file(path, folder, share)
            path.unlink()
    return shared


def _write_archive(artifacts: Sequence[Artifact], path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        for artifact in artifacts:
            with _on_this_machine(artifact) as local, open(local, "rb") as file:
                entry = tarfile.TarInfo(artifact.name)
                entry.size = file.seek(0, io.SEEK_END)
                file.seek(0)
                archive.addfile(entry, file)


@contextlib.contextmanager
def _on_this_machine(artifact: Artifact) -> Iterator[str]:
    """Yield the path of a file, or of a local copy if a job server stores it in an object store."""
    if not is_url(artifact.path):
        yield artifact.path
        return
    place, _, name = artifact.path.rpartition("/")
    with contextlib.ExitStack() as copies:
        try:
            copy = copies.enter_context(folder_at(place).local(name))
        except OSError as error:
            raise StagingError(f"{artifact.path}: {first_line(error)}") from error
        yield copy
