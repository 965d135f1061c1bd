"""The last step of Beam's file sinks may be repeated, also where names have windows in them."""

from pathlib import Path

import pytest
from apache_beam.io import textio
from apache_beam.transforms.window import IntervalWindow

from beam_spark_runner.harness.beam.file_sinks import find_files_of_windows


@pytest.mark.parametrize("template", ["-W-SSSSS-of-NNNNN", "-V-SSSSS-of-NNNNN", "-SSSSS-of-NNNNN"])
def test_files_that_have_their_names_are_found(tmp_path: Path, template: str) -> None:
    find_files_of_windows()
    sink = textio._TextSink(str(tmp_path / "out [1]"), ".txt", shard_name_template=template)
    window, temporary = IntervalWindow(0, 8), tmp_path / "temporary"
    temporary.mkdir()
    written = [str(temporary / name) for name in "abc"]
    names = [Path(sink._get_final_name(number, 3, window)) for number in range(3)]
    for name in written[1:]:
        Path(name).write_text(f"lines of {name}")
    names[0].write_text("renamed already")
    names[1].write_text(f"lines of {written[1]}")  # copied, as object stores do
    (tmp_path / "out [1]-[8.0, 16.0)-00000-of-00003.txt").write_text("of another window")
    sources, targets, copied, skipped = sink._check_state_for_finalize_write(written, 3, window)
    assert (sources, targets) == (written[2:], [str(names[2])])
    assert (copied, skipped) == (written[1:2], 1)
