"""File sinks of streaming pipelines that fail between writing and renaming, and are continued."""

from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.io import iobase, textio
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.window import FixedWindows, IntervalWindow, TimestampedValue

from beam_spark_runner.core.errors import BundleFailedError
from tests.harvest import harvest


class _Sink(textio._TextSink):  # type: ignore[misc]
    """Cannot rename its files while there is a file "obstacle" next to them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder / "out"), shard_name_template="-W-SSSSS-of-NNNNN", num_shards=1)
        self._obstacle = folder / "obstacle"

    def finalize_windowed_write(
        self, init_result: Any, results: Any, before: Any, w: Any = None
    ) -> Any:
        if self._obstacle.exists():
            raise OSError("it is not possible now")
        return super().finalize_windowed_write(init_result, results, before, w)


def _build(folder: Path) -> Any:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream().with_output_types(str)
        events.add_elements([TimestampedValue("a", 1), TimestampedValue("b", 12)])
        windows = p | events.advance_watermark_to_infinity() | beam.WindowInto(FixedWindows(10))
        return {"files": windows | iobase.Write(_Sink(folder))}

    return build


def _lines(folder: Path) -> dict[str, list[str]]:
    return {file.name: file.read_text().splitlines() for file in folder.glob("out-*")}


def test_files_that_were_not_renamed_are_renamed_later(spark_session: Any, tmp_path: Path) -> None:
    folder, flag = tmp_path / "files", f"--checkpoint_dir={tmp_path / 'checkpoints'}"
    folder.mkdir()
    (folder / "obstacle").touch()
    for _ in range(2):
        with pytest.raises(BundleFailedError, match="it is not possible now"):
            harvest(spark_session, _build(folder), flag)
        assert not _lines(folder)
    (folder / "obstacle").unlink()
    harvest(spark_session, _build(folder), flag)
    windows = {line: IntervalWindow(*ends) for line, ends in (("a", (0, 10)), ("b", (10, 20)))}
    assert _lines(folder) == {
        f"out-{window}-00000-of-00001": [line] for line, window in windows.items()
    }
    assert not list(folder.glob("beam-temp-*/*"))


@pytest.mark.rare
def test_without_a_checkpoint_nothing_is_left(spark_session: Any, tmp_path: Path) -> None:
    (tmp_path / "obstacle").touch()
    with pytest.raises(BundleFailedError, match="it is not possible now"):
        harvest(spark_session, _build(tmp_path))
    assert [each.name for each in tmp_path.iterdir()] == ["obstacle"]
