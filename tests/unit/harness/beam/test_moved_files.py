"""The step in which ``fileio.WriteToFiles`` gives files their final names."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.io import fileio
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.io.hadoopfilesystem import HadoopFileSystem
from apache_beam.options.value_provider import StaticValueProvider
from apache_beam.transforms import core
from apache_beam.transforms.window import IntervalWindow

from beam_spark_runner.harness.beam import file_sinks
from beam_spark_runner.harness.beam.file_sinks import patch_file_sinks

_WINDOW = IntervalWindow(0, 8)


def _in_subfolder(
    window: Any, pane: Any, number: int, count: int, compression: str, destination: str
) -> str:
    return f"dt={destination}/part-{number}-of-{count}"


class Move:
    """A step that renames files, of one destination and window."""

    def __init__(self, out: str, naming: Any = _in_subfolder) -> None:
        patch_file_sinks()
        self.temporary = FileSystems.join(out, ".temp")
        self._step = fileio._MoveTempFilesIntoFinalDestinationFn(
            StaticValueProvider(str, out), naming, StaticValueProvider(str, self.temporary)
        )

    def write(self, names: Sequence[str]) -> None:
        """Write temporary files; each contains its name."""
        for name in names:
            with FileSystems.create(FileSystems.join(self.temporary, name)) as file:
                file.write(name.encode())

    def run(self, names: Sequence[str]) -> list[str]:
        """Give files their final names, which are returned."""
        files = [
            fileio.FileResult(
                FileSystems.join(self.temporary, name), -1, 0, _WINDOW, None, "monday"
            )
            for name in names
        ]
        results = [*self._step.process(("monday", files), _WINDOW)]
        assert [each.shard_index for each in results] == [*range(len(names))]
        for each in results:
            assert each[2:] == (len(names), _WINDOW, None, "monday")
        return [each.file_name for each in results]


def _contents(folder: Path) -> list[str]:
    return [file.read_text() for file in sorted(folder.glob("dt=monday/*"))]


def test_names_in_folders_that_do_not_exist_yet(tmp_path: Path) -> None:
    move = Move(str(tmp_path))
    move.write("ab")
    assert move.run("ab") == [f"dt=monday/part-{number}-of-2" for number in range(2)]
    assert _contents(tmp_path) == ["a", "b"]
    assert not any(Path(move.temporary).iterdir())


def test_why_its_input_has_to_be_stable(tmp_path: Path) -> None:
    """An epoch that renames a committed file and its own, dies, and has another file of its own."""
    move = Move(str(tmp_path))
    move.write("bd")
    move.run("bd")
    move.write("a")
    move.run("ab")
    assert _contents(tmp_path) == ["a", "d"], "b, which was committed, is lost"


class Refusing:
    """Takes the place of ``FileSystems.rename``, and renames no file of some name."""

    def __init__(self, name: str) -> None:
        self._name, self._rename = name, FileSystems.rename

    def __call__(self, sources: list[str], targets: list[str]) -> None:
        refused = {}
        for source, target in zip(sources, targets, strict=True):
            if source.endswith(self._name):
                refused[source, target] = OSError("no space left on device")
            else:
                self._rename([source], [target])
        if refused:
            raise BeamIOError("Rename operation failed", refused)


@pytest.mark.parametrize("again", ["abc", "cba", "bca"])
def test_a_file_that_cannot_be_renamed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    """And the step may be repeated, with the files in another order."""
    move = Move(str(tmp_path))
    move.write("abc")
    monkeypatch.setattr(FileSystems, "rename", Refusing("/b"))
    with pytest.raises(BeamIOError, match=r"\.temp/b', '\S*/part-1-of-3'\): .*no space left"):
        move.run("abc")
    monkeypatch.undo()
    assert (Path(move.temporary) / "b").read_text() == "b"
    for _ in range(2):
        assert move.run(again) == [f"dt=monday/part-{number}-of-3" for number in range(3)]
        assert _contents(tmp_path) == ["a", "b", "c"]


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "dt=monday").write_text("a file")
    move = Move(str(tmp_path))
    move.write("a")
    with pytest.raises(OSError, match="dt=monday"):
        move.run("a")
    assert (Path(move.temporary) / "a").exists()


def test_what_another_attempt_has_renamed_meanwhile_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    move, rename = Move(str(tmp_path), lambda *_: "name"), FileSystems.rename

    def rename_twice(sources: list[str], targets: list[str]) -> None:
        rename(sources, targets)
        rename(sources, targets)

    move.write("a")
    monkeypatch.setattr(FileSystems, "rename", rename_twice)
    move.run("a")
    assert (tmp_path / "name").read_text() == "a"


def test_a_file_with_neither_name_is_an_error(tmp_path: Path) -> None:
    move = Move(str(tmp_path))
    move.write("ab")
    names = move.run("ab")
    (tmp_path / names[0]).unlink()
    problem = r"there is neither \S*/a nor \S*/dt=monday/part-0-of-2\. If .* create a file"
    with pytest.raises(FileNotFoundError, match=problem):
        move.run("ab")
    (tmp_path / names[0]).touch()
    assert move.run("ab") == names


def test_a_file_system_that_does_not_replace_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HDFS is one: an earlier pane or run has files of the same names."""
    move, rename = Move(str(tmp_path)), FileSystems.rename

    def rename_to_new_names(sources: list[str], targets: list[str]) -> None:
        if any(map(FileSystems.exists, targets)):
            raise BeamIOError("a file has this name")
        rename(sources, targets)

    monkeypatch.setattr(FileSystems, "rename", rename_to_new_names)
    monkeypatch.setattr(file_sinks, "LocalFileSystem", HadoopFileSystem)
    for name in "ab":
        move.write(name)
        assert move.run(name) == ["dt=monday/part-0-of-1"]
        assert _contents(tmp_path) == [name]


def test_types_stay_as_beam_infers_them() -> None:
    step = Move("out")._step
    assert step.get_type_hints().output_types is None
    assert core.get_function_args_defaults(step.process)[1] == [beam.DoFn.WindowParam]
