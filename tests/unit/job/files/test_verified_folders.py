"""``beam-spark-savepoint verify``, and savepoints of real files."""

from pathlib import Path

import pytest

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.job.files.shard_places import existing_storage, save, storage_at
from beam_spark_runner.recovery.heads import DeltaId, Head
from beam_spark_runner.recovery.manifest import Manifest, encode, manifest_name
from beam_spark_runner.recovery.sweep import delta_name
from beam_spark_runner.savepoint import main
from beam_spark_runner.state.chain import ChainedDelta, ShardVersion, SliceStart
from beam_spark_runner.state.delta import CorruptDeltaError, DeltaWriter


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two epochs, each of which has written the only shard whole."""
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    for epoch in (1, 2):
        version = ShardVersion(epoch, 7)
        writer = DeltaWriter(checkpoints / delta_name("main", 0, 0, *version))
        writer.put(b"key", b"value" * epoch)
        writer.finish((ChainedDelta(version, 9, SliceStart(0, b"")),))
        manifest = Manifest(
            epoch=epoch,
            fence=1,
            lineage="main",
            parent=epoch - 1,
            heads={(0, 0): Head(DeltaId(*version))},
            partitions=1,
            key_groups=1,
        )
        (checkpoints / manifest_name("main", epoch)).write_bytes(encode(manifest))
    return checkpoints


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_a_folder_without_damage_is_whole(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(folder)]) == 0
    assert capsys.readouterr().out == "epoch 2 is whole (1 files)\nepoch 1 is whole (1 files)\n"


def test_what_is_damaged_is_named_and_what_is_whole(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newest = delta_name("main", 0, 0, 2, 7)
    damage(folder / newest)
    assert main(["verify", str(folder)]) == 1
    said = capsys.readouterr().out
    assert said.startswith("epoch 2 is damaged:\n  - ")
    assert newest in said
    assert said.endswith("epoch 1 is whole (1 files)\n")


def test_a_savepoint_of_damaged_data_fails(folder: Path, tmp_path: Path) -> None:
    newest = delta_name("main", 0, 0, 2, 7)
    damage(folder / newest)
    source, target = (
        existing_storage(str(folder), "checkpoint_dir"),
        storage_at(str(tmp_path / "saved"), "savepoint_path"),
    )
    with pytest.raises(CorruptDeltaError, match=newest):
        save(source, target)
    assert not list((tmp_path / "saved").glob("*.manifest"))


def test_there_is_nothing_to_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(tmp_path)]) == 1
    assert "no epoch is committed in" in capsys.readouterr().err
    assert main(["verify", str(tmp_path / "none")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    with pytest.raises(OptionsError):
        existing_storage(str(tmp_path / "none"), "FOLDER")
