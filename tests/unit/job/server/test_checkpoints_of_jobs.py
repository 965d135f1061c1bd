"""The checkpoint that a server has chosen for a stream is removed with it, unless others use it."""

from pathlib import Path

import pytest

from beam_spark_runner.job.files.checkpoint_storage import CheckpointStorage
from beam_spark_runner.job.files.shard_places import owner_of
from beam_spark_runner.job.prepare.continued_streams import default_checkpoint
from beam_spark_runner.job.server.stored_jobs import StoredJobs
from beam_spark_runner.recovery.checkpoint_subfolder import chosen_subfolder
from beam_spark_runner.recovery.commit import claim
from beam_spark_runner.recovery.manifest import pin_name
from beam_spark_runner.storage.folder_at import folder_at


@pytest.mark.parametrize(
    ("owners", "pinned", "stays"),
    [
        pytest.param([], False, False, id="it has not begun"),
        pytest.param(["own"], False, False, id="its own"),
        pytest.param(["own", "another"], False, True, id="another job has continued it"),
        pytest.param(["own", ""], False, True, id="a program has continued it"),
        pytest.param(["program"], False, True, id="a program has begun in it"),
        pytest.param(["own"], True, True, id="a pipeline is copying it"),
    ],
)
@pytest.mark.parametrize("way", ["remove_end", "remove"])
def test_a_checkpoint_is_removed_unless_others_use_it(
    tmp_path: Path, way: str, owners: list[str], *, pinned: bool, stays: bool
) -> None:
    job = StoredJobs(str(tmp_path / "jobs"), {}).new_job()
    place = default_checkpoint(job.location)
    checkpoint = CheckpointStorage(folder_at(place), place)
    checkpoint.make("checkpoint_dir")
    for owner in owners:
        if owner == "program":
            chosen_subfolder(checkpoint, "1")
            continue
        claim(checkpoint, owner_of(job.location) if owner == "own" else owner.encode())
    if pinned:
        checkpoint.create(pin_name(1, "0123456789abcdef"), b"")
    getattr(job, way)()
    assert checkpoint.exists() is stays
