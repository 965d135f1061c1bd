"""Beam's file sinks in streaming pipelines: repeated last steps, and several files at a time."""

import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet
import pytest
from apache_beam.io import avroio, iobase, parquetio, textio
from apache_beam.io.filebasedsink import FileBasedSink
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.transforms.window import IntervalWindow

from beam_spark_runner.harness.beam.file_sinks import patch_file_sinks

_WINDOW = IntervalWindow(0, 8)


@pytest.mark.parametrize("template", ["-W-SSSSS-of-NNNNN", "-V-SSSSS-of-NNNNN"])
def test_files_that_have_their_names_are_found(tmp_path: Path, template: str) -> None:
    patch_file_sinks()
    sink = textio._TextSink(str(tmp_path / "out [1]"), ".txt", shard_name_template=template)
    window, temporary = IntervalWindow(0, 8), tmp_path / "temporary"
    temporary.mkdir()
    written = [str(temporary / name) for name in "abc"]
    names = [Path(sink._get_final_name(number, 3, window)) for number in range(3)]
    for name in written[1:]:
        Path(name).write_text(f"lines of {name}")
    names[0].write_text("renamed already")
    names[1].write_text("half copied, as in object stores")
    yielded = [*sink.finalize_windowed_write(str(temporary), written, [], window)]
    assert yielded == [str(name) for name in names]
    assert [name.read_text() for name in names] == [
        "renamed already",
        *(f"lines of {name}" for name in written[1:]),
    ]
    assert not temporary.exists()


def _repeatable(
    folder: Path, template: str = "-W-SSSSS-of-NNNNN", window: IntervalWindow | None = _WINDOW
) -> Callable[[], list[Any]]:
    """Write a file with a temporary name; return a last step that gives it its final name."""
    sink = _text_sink(folder, 1, template)
    temporary = sink.initialize_write()
    written = [_written(sink, temporary, "a", "line")]
    return lambda: _finalized(sink, temporary, written, 1, window)


def test_a_file_that_was_taken_away_can_be_told_from_a_lost_one_only_by_the_user(
    tmp_path: Path,
) -> None:
    finalize = _repeatable(tmp_path)
    finalize()
    (file,) = tmp_path.glob("out-*")
    file.unlink()
    problem = rf"there is neither \S*/a\.out nor {re.escape(str(file))}\. If .* create a file"
    with pytest.raises(FileNotFoundError, match=problem):
        finalize()
    file.touch()
    assert finalize() == [str(file)]


@pytest.mark.parametrize("template", ["-SSSSS-of-NNNNN", "-U-SSSSS-of-NNNNN"])
@pytest.mark.parametrize("window", [_WINDOW, None])
def test_a_repeated_last_step_emits_all_names(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    window: IntervalWindow | None,
    template: str,
) -> None:
    sink, rename, lives = _text_sink(tmp_path, 4, template), FileSystems.rename, ["one"]
    temporary = sink.initialize_write()
    written = [_written(sink, temporary, name, name) for name in "abc"]

    def rename_one(sources: list[str], targets: list[str]) -> None:
        if lives:
            lives.clear()
            rename(sources[:1], targets[:1])
        raise BeamIOError("the program is killed")

    monkeypatch.setattr(FileSystems, "rename", rename_one)
    with pytest.raises(BeamIOError, match="is killed"):
        _finalized(sink, temporary, written, 4, window)
    monkeypatch.undo()
    assert len(list(tmp_path.glob("out-*"))) == 1
    for _ in range(2):
        emitted = _finalized(sink, temporary, written, 4, window)
        assert sorted(emitted) == sorted(map(str, tmp_path.glob("out-*")))
        assert len(emitted) == 4
        assert _lines(tmp_path) == ["a", "b", "c"]


@pytest.mark.parametrize("window", [_WINDOW, None])
def test_uuids_in_names_stay_when_the_last_step_is_repeated(
    tmp_path: Path, window: IntervalWindow | None
) -> None:
    finalize = _repeatable(tmp_path, "-UUU-SSSSS-of-NNNNN", window)
    for _ in range(3):
        finalize()
        (file,) = tmp_path.glob("out-*")
        assert re.fullmatch(r"out-\d{36,39}-00000-of-00001", file.name)
        assert _lines(tmp_path) == ["line"]


def test_files_of_a_write_have_several_uuids(tmp_path: Path) -> None:
    sink = _text_sink(tmp_path, 2, "-U-SSSSS-of-NNNNN")
    temporary = sink.initialize_write()
    written = [_written(sink, temporary, name, name) for name in "ab"]
    _finalized(sink, temporary, written, 2)
    assert len({path.name.split("-")[1] for path in tmp_path.glob("out-*")}) == 2


_FIELDS = [{"name": "number", "type": "long"}]


def _avro(path: str) -> tuple[FileBasedSink, Any, Any]:
    schema = {"type": "record", "name": "Number", "fields": _FIELDS}
    sink = avroio.WriteToAvro(path, schema)._sink_provider(schema)

    def numbers_in(file: Path) -> list[int]:
        with file.open("rb") as stream:
            rows: Any = fastavro.reader(stream)
            return [row["number"] for row in rows]

    return sink, lambda number: {"number": number}, numbers_in


def _parquet(path: str) -> tuple[FileBasedSink, Any, Any]:
    schema = pa.schema([("number", pa.int64())])
    sink = parquetio.WriteToParquet(path, schema)._sink

    def numbers_in(file: Path) -> list[int]:
        numbers: list[int] = pyarrow.parquet.read_table(file)["number"].to_pylist()
        return numbers

    return sink, lambda number: pa.table([[number]], schema), numbers_in


@pytest.mark.parametrize("kind", [_avro, _parquet])
def test_files_that_are_open_at_the_same_time(tmp_path: Path, kind: Any) -> None:
    patch_file_sinks()
    sink, record_of, numbers_in = kind(str(tmp_path / "out"))
    writers = [sink.open_writer(str(tmp_path), name) for name in ("odd", "even")]
    for number in range(10):
        writers[1 - number % 2].write(record_of(number))
    paths = [Path(writer.close()) for writer in writers]
    assert [numbers_in(path) for path in paths] == [[1, 3, 5, 7, 9], [0, 2, 4, 6, 8]]


def _text_sink(folder: Path, shards: int, template: str = "-W-SSSSS-of-NNNNN") -> Any:
    patch_file_sinks()
    return textio._TextSink(str(folder / "out"), shard_name_template=template, num_shards=shards)


def _written(sink: Any, temporary: str, name: str, line: str) -> str:
    writer = sink.open_writer(temporary, name)
    writer.write(line.encode())
    return str(writer.close())


def _finalized(
    sink: Any,
    temporary: str,
    written: list[str],
    shards: int,
    window: IntervalWindow | None = _WINDOW,
) -> list[Any]:
    """Run the last step of a write as the SDK does, with the pane of one window or without any."""
    if window is None:
        done = iobase._finalize_write(None, sink, temporary, written, shards, [])
    else:
        sink.pre_finalize_windowed(temporary, written, window)
        done = iobase._finalize_windowed_write(None, sink, temporary, written, shards, [], w=window)
    return [each.value for each in done or ()]


def _lines(folder: Path) -> list[str]:
    return sorted(line for file in folder.glob("out-*") for line in file.read_text().splitlines())


@pytest.mark.parametrize("attempt", range(10))
def test_empty_shards_replace_nothing_if_the_last_step_is_repeated(
    tmp_path: Path, attempt: int
) -> None:
    sink = _text_sink(tmp_path, 3)
    temporary = str(tmp_path / "temporary")
    Path(temporary).mkdir()
    written = [_written(sink, temporary, str(uuid.uuid4()), "line")]
    for _ in range(3):
        _finalized(sink, temporary, written, 3)
        assert _lines(tmp_path) == ["line"]
        assert len(list(tmp_path.glob("out-*-of-00003"))) == 3
    assert not Path(temporary).exists()


def test_empty_shards_of_two_windows_have_other_names(tmp_path: Path) -> None:
    """Two tasks may have them open at the same time, in one folder."""
    sink = _text_sink(tmp_path, 2)
    opened: list[str] = []
    for name in "ab":
        written = [_written(sink, str(tmp_path), name, "line")]
        sink.finalize_windowed_write = lambda _, results, *rest: opened.extend(results)
        iobase._finalize_windowed_write(
            None, sink, str(tmp_path), written, 2, [], w=IntervalWindow(0, 8)
        )
    assert len(set(opened)) == 4


def test_a_late_pane_whose_files_are_in_the_folder_of_the_pane_before(tmp_path: Path) -> None:
    sink = _text_sink(tmp_path, 1)
    temporary = str(tmp_path / "temporary")
    Path(temporary).mkdir()
    on_time = [_written(sink, temporary, "first", "on time")]
    late = [_written(sink, temporary, "second", "on time\nlate")]
    for written, lines in ((on_time, ["on time"]), (late, ["late", "on time"])):
        for _ in range(2):
            _finalized(sink, temporary, written, 1)
            assert _lines(tmp_path) == lines
    assert not Path(temporary).exists()


def test_an_earlier_pane_stays_until_it_is_replaced(tmp_path: Path) -> None:
    """Its own renaming may be repeated after the next pane's files were prepared."""
    sink = _text_sink(tmp_path, 1)
    temporary, window = str(tmp_path / "temporary"), IntervalWindow(0, 8)
    Path(temporary).mkdir()
    on_time = [_written(sink, temporary, "first", "on time")]
    _finalized(sink, temporary, on_time, 1)
    sink.pre_finalize_windowed(temporary, [str(tmp_path / "late")], window)
    _finalized(sink, temporary, on_time, 1)
    assert _lines(tmp_path) == ["on time"]


def test_what_failed_attempts_have_left_stays_for_the_end_of_the_pipeline(tmp_path: Path) -> None:
    sink = _text_sink(tmp_path, 1)
    temporary = str(tmp_path / "temporary")
    Path(temporary).mkdir()
    _written(sink, temporary, "of a failed attempt", "line")
    _finalized(sink, temporary, [_written(sink, temporary, "a", "line")], 1)
    assert [each.name for each in Path(temporary).iterdir()] == ["of a failed attempt.out"]


@pytest.mark.parametrize(("first", "second"), [("b", "a"), ("a", "b")])
def test_a_pane_whose_files_are_in_two_folders(tmp_path: Path, first: str, second: str) -> None:
    """Its elements were written before its own folder was known, and its empty shards after it."""
    sink = _text_sink(tmp_path, 3)
    folders = [str(tmp_path / first), str(tmp_path / second)]
    for each in folders:
        Path(each).mkdir()
    on_time = [_written(sink, folders[0], f"on time {n}", f"{n}") for n in range(2)]
    late = [_written(sink, folders[0], "late", "all")]
    _finalized(sink, folders[0], on_time, 3)
    assert _lines(tmp_path) == ["0", "1"]
    for _ in range(2):
        _finalized(sink, folders[1], late, 3)
        assert _lines(tmp_path) == ["all"]
    assert not any(Path(each).exists() for each in folders)
