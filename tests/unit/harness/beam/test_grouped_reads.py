"""Beam's reading DoFns send lines in groups, and read all other files themselves."""

from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.io import filebasedsource, iobase, textio, tfrecordio
from apache_beam.io.filesystem import CompressionTypes, FileMetadata
from apache_beam.io.restriction_trackers import OffsetRange

from beam_spark_runner.harness.beam.grouped_reads import GroupedReads, RangesLoop, is_reader
from beam_spark_runner.harness.beam.step_choice import step_for
from beam_spark_runner.harness.values.constants import Kind
from tests.unit.harness.beam.step_outputs import Output, origin


def text_source(pattern: str) -> iobase.BoundedSource:
    coder = beam.coders.StrUtf8Coder()
    return textio._TextSource(pattern, 0, CompressionTypes.AUTO, True, coder, validate=False)


def records_source(pattern: str) -> iobase.BoundedSource:
    coder = beam.coders.BytesCoder()
    return tfrecordio._TFRecordSource(pattern, coder, CompressionTypes.AUTO, validate=False)


def range_of(path: Path, start: int, stop: int) -> tuple[FileMetadata, OffsetRange]:
    return FileMetadata(str(path), path.stat().st_size), OffsetRange(start, stop)


def test_the_dofn_of_reads_is_found_and_no_other() -> None:
    fn = iobase.SDFBoundedSourceReader()._create_sdf_bounded_source_dofn()

    assert is_reader(fn)
    assert not is_reader(beam.Map(str).fn)
    assert not is_reader(GroupedReads(fn))


@pytest.mark.parametrize("with_name", [False, True])
def test_ranges_of_text_are_read_in_groups(tmp_path: Path, with_name: bool) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"one\ntwo\nthree\nfour\n")
    step = step_for(filebasedsource._ReadRange(text_source, with_name))
    output = Output()

    elements = [range_of(path, 0, 5), range_of(path, 5, 19)]
    step.run(elements, [origin(1), origin(2)], Kind.PLAIN, output)

    assert isinstance(step, RangesLoop)
    lines: list[Any] = [("one", 1), ("two", 1), ("three", 2), ("four", 2)]
    if with_name:
        lines = [((str(path), line), time) for line, time in lines]
    assert output.received == lines
    assert output.sizes == [1, 1, 1, 1]


def test_ranges_of_other_files_are_read_by_beam(tmp_path: Path) -> None:
    path = tmp_path / "records"
    with path.open("wb") as file:
        for record in (b"one", b"two"):
            tfrecordio._TFRecordUtil.write_record(file, record)
    step = step_for(filebasedsource._ReadRange(records_source))
    output = Output()

    step.run([range_of(path, 0, 100)], [origin(1)], Kind.PLAIN, output)

    assert output.received == [(b"one", 1), (b"two", 1)]


def test_an_empty_file_has_no_lines(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    step = step_for(filebasedsource._ReadRange(text_source))
    output = Output()

    step.run([range_of(path, 0, 0)], [origin(1)], Kind.PLAIN, output)

    assert output.received == []
