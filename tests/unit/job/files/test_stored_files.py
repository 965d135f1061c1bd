from pathlib import Path

import pytest
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.transforms import environments

from beam_spark_runner.core import urns
from beam_spark_runner.job.files.stored_files import (
    store_files,
    with_fetched_files,
    with_names_of_files,
)
from beam_spark_runner.storage.folder import Folder
from beam_spark_runner.storage.mounted_folder import MountedFolder


def pipeline_with(*paths: Path) -> beam_runner_api_pb2.Pipeline:
    pipeline = beam_runner_api_pb2.Pipeline()
    environment = environments.ProcessEnvironment("run").to_runner_api(None)
    for path in paths:
        file = beam_runner_api_pb2.ArtifactFilePayload(path=str(path))
        environment.dependencies.add(
            type_urn=urns.ARTIFACT_FILE, type_payload=file.SerializeToString()
        )
    pipeline.components.environments["e"].CopyFrom(environment)
    return pipeline


def paths_of(pipeline: beam_runner_api_pb2.Pipeline) -> list[str]:
    return [
        beam_runner_api_pb2.ArtifactFilePayload.FromString(each.type_payload).path
        for each in pipeline.components.environments["e"].dependencies
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return MountedFolder(str(tmp_path / "job"))


def test_files_survive_the_first_start(tmp_path: Path, folder: Folder) -> None:
    first, second, copy = (tmp_path / name for name in ("first", "second", "copy"))
    first.write_bytes(b"content")
    second.write_bytes(b"other content")
    copy.write_bytes(b"content")
    pipeline = pipeline_with(first, second, copy)
    stored, paths = with_names_of_files(pipeline)
    folder.make()
    for _ in range(2):  # a later start stores what the first one has not
        store_files(paths, folder)
        assert sorted(folder.names()) == sorted(paths)
    assert len(paths) == 2
    for path in (first, second, copy):
        path.unlink()
    target = tmp_path / "fetched"
    target.mkdir()
    fetched = with_fetched_files(stored, folder, target)
    contents = [Path(path).read_bytes() for path in paths_of(fetched)]
    assert contents == [b"content", b"other content", b"content"]
    assert paths_of(pipeline) == [str(first), str(second), str(copy)]  # it is as it was
