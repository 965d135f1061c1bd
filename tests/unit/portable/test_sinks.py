"""Which folders are a failed pipeline's own, among others beside its output."""

import time
import uuid
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.io import fileio

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

    remove_temporary_files(graph, began, has_written_all=has_written_all)

    assert of_run.exists() is has_written_all
    assert not of_fileio.exists()
    assert all(each.exists() for each in (users, older, *others))
