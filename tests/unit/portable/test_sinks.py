"""Which folders are a failed pipeline's own, among others next to its output."""

import time
import uuid
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.io import fileio
from apache_beam.transforms import environments

from beam_spark_runner.portable.pipeline import from_proto
from beam_spark_runner.portable.sinks import remove_temporary_files


def folder(path: Path) -> Path:
    (path / "shard").mkdir(parents=True)
    (path / "shard" / "rows").write_text("half of it")
    return path


@pytest.mark.parametrize("has_written_all", [True, False])
def test_only_what_the_run_itself_has_made_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_written_all: bool
) -> None:
    pipeline = beam.Pipeline()
    lines = pipeline | beam.Create(["a"])
    lines | "text" >> beam.io.WriteToText(str(tmp_path / "out" / "x"))
    files = fileio.WriteToFiles(str(tmp_path / "files"))
    lines | "files" >> files
    lines | "own" >> fileio.WriteToFiles(
        str(tmp_path / "files"), temp_directory=str(tmp_path / "users")
    )
    graph = from_proto(pipeline.to_runner_api())
    of_fileio = Path(files._temp_directory.get())
    users = folder(tmp_path / "users")
    older = folder(tmp_path / "out" / f"beam-temp-x-{uuid.uuid1().hex}")
    began = time.time()
    of_run = folder(tmp_path / "out" / f"beam-temp-x-{uuid.uuid1().hex}")
    others = [
        folder(tmp_path / "out" / f"beam-temp-{name}{uuid.uuid1().hex}")
        for name in ("y-", "x-y-", "x-not-a-number-")
    ]
    folder(of_fileio)
    monkeypatch.setattr(time, "sleep", lambda _: folder(of_run))  # a straggler

    remove_temporary_files(
        graph, began, has_succeeded=has_written_all, has_written_all=has_written_all
    )

    assert of_run.exists() is has_written_all
    assert not of_fileio.exists()
    assert all(each.exists() for each in (users, older, *others))


@pytest.mark.parametrize("is_left", [True, False])
@pytest.mark.parametrize(
    ("environment", "has_succeeded", "stays"),
    [
        (environments.EmbeddedPythonEnvironment(), True, False),
        (environments.ProcessEnvironment(""), True, False),
        (environments.ProcessEnvironment("/opt/boot"), True, True),
        (environments.DockerEnvironment("image"), True, True),
        (environments.DockerEnvironment("image"), False, False),
        (environments.ExternalEnvironment("localhost:1"), True, True),
    ],
)
def test_files_that_a_stock_sdk_may_have_failed_to_rename_stay(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    environment: environments.Environment,
    has_succeeded: bool,
    stays: bool,
    is_left: bool,
) -> None:
    pipeline = beam.Pipeline()
    write = fileio.WriteToFiles(str(tmp_path))
    pipeline | beam.Create(["a"]) | write
    graph = from_proto(pipeline.to_runner_api(default_environment=environment))
    temporary = Path(write._temp_directory.get())
    temporary.mkdir()
    if is_left:
        (temporary / "1_2").write_text("the only copy?")
    monkeypatch.setattr(time, "sleep", lambda _: None)

    remove_temporary_files(
        graph,
        time.time(),
        has_succeeded=has_succeeded,
        has_written_all=has_succeeded,
    )

    assert temporary.exists() is (stays and is_left)
    assert (f"{temporary} has files" in caplog.text) is (stays and is_left)
