"""Files that a program removes before they are sent to executors."""

import os
import tempfile
from pathlib import Path

import pytest

from beam_spark_runner.job.prepare.kept_packages import keep_packages
from beam_spark_runner.portable.artifacts import Artifact


@pytest.mark.parametrize("can_link", [True, False])
def test_files_outlast_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_link: bool
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    target, source, kept = tmp_path / "a-1.jar", tmp_path / "a.jar", tmp_path / "kept"
    target.write_bytes(b"classes")
    source.symlink_to(target.name)
    kept.mkdir()
    if not can_link:

        def refuse(*_: object) -> None:
            raise OSError("another device")

        monkeypatch.setattr(os, "link", refuse)
    stored = Artifact(name="s", path="s3://bucket/s", sha256="2")
    artifact = Artifact(name="a.jar", path=str(source), sha256="1")
    (found, url) = keep_packages({"set": (artifact, stored)}, kept)["set"]
    source.unlink()
    target.unlink()
    assert Path(found.path).read_bytes() == b"classes"
    assert (found.name, found.sha256, url) == ("a.jar", "1", stored)


def test_files_that_are_not_temporary_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    artifact = Artifact(name="a.jar", path=str(tmp_path / "a.jar"), sha256="1")
    assert keep_packages({"set": (artifact,)}, tmp_path) == {"set": (artifact,)}
