"""Files that a program removes before they are sent to executors."""

import os
from pathlib import Path

import pytest

from beam_spark_runner.job.prepare.kept_packages import keep_packages
from beam_spark_runner.portable.artifacts import Artifact


@pytest.mark.parametrize("can_link", [True, False])
def test_files_outlast_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_link: bool
) -> None:
    source, kept = tmp_path / "a.jar", tmp_path / "kept"
    source.write_bytes(b"classes")
    kept.mkdir()
    if not can_link:

        def refuse(*_: object) -> None:
            raise OSError("another device")

        monkeypatch.setattr(os, "link", refuse)
    stored = Artifact(name="s", path="s3://bucket/s", sha256="2")
    artifact = Artifact(name="a.jar", path=str(source), sha256="1")
    (found, url) = keep_packages({"set": (artifact, stored)}, kept)["set"]
    source.unlink()
    assert Path(found.path).read_bytes() == b"classes"
    assert (found.name, found.sha256, url) == ("a.jar", "1", stored)
