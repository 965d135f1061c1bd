"""Where a job server has the files of its clients."""

from pathlib import Path

import pytest

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.job.server.staging_area import StagingArea, open_staging_area


def test_a_file_is_kept_by_its_name(tmp_path: Path) -> None:
    area = StagingArea(str(tmp_path)).of_job("job")
    assert list(tmp_path.iterdir()) == []
    with area.receive() as file:
        file.write(b"content")
        file.close()
        kept = area.store(file.name, "name")
    assert (kept, Path(kept).read_bytes()) == (str(tmp_path / "job" / "name"), b"content")
    area.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_kept_is_gone(tmp_path: Path) -> None:
    area = StagingArea(str(tmp_path))
    with area.receive() as file:
        file.write(b"content")
    assert list(tmp_path.iterdir()) == []


def test_two_servers_have_two_areas_in_one_folder(tmp_path: Path) -> None:
    one, other = (open_staging_area(str(tmp_path / "new")) for _ in range(2))
    assert one != other
    assert {Path(each.location).parent for each in (one, other)} == {tmp_path / "new"}


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("{}/file/in", "Not a directory"),
        ("ftp://host/folder", "is none of s3://"),
        ("s3:///folder", "the bucket is missing"),
        ("hdfs://namenode/folder", "clients of HDFS"),
    ],
)
def test_what_cannot_be_an_area_is_refused(tmp_path: Path, location: str, problem: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OptionsError, match=problem) as raised:
        open_staging_area(location.format(tmp_path))
    assert raised.value.option == "artifacts_dir"
