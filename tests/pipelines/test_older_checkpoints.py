"""What earlier releases have stored is continued, or refused with the version and a remedy."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from beam_spark_runner.job.files import stored_submission
from beam_spark_runner.job.files.stored_submission import versions_of
from beam_spark_runner.recovery.batch_start import SUBMISSION
from beam_spark_runner.recovery.manifest import IncompatibleCheckpointError
from tests.harvest import Harvest
from tests.pipelines import stored_batch, stored_kinds, stored_releases
from tests.pipelines.recoverable import Job
from tests.pipelines.served_jobs import counters, serving, state_of
from tests.pipelines.stored_releases import (
    BATCH,
    CHECKPOINT,
    IN_PROCESS,
    KINDS,
    SAVEPOINT,
    SERVER,
    archives,
    batch_job,
    this_release,
    unpack,
)


def each_of(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("archive", archives(kind), ids=lambda path: path.name[:-7])


@pytest.fixture(scope="module")
def expected(spark_session: Any, tmp_path_factory: pytest.TempPathFactory) -> Harvest:
    """Return what a run gives that continues from a checkpoint of this version."""
    folder = tmp_path_factory.mktemp("checkpoint")
    stored_kinds.stop(folder)
    return stored_kinds.run(folder)


@each_of(CHECKPOINT)
def test_a_stream_continues_from_an_older_checkpoint(
    spark_session: Any, expected: Harvest, archive: Path, tmp_path: Path
) -> None:
    unpack(archive, tmp_path)
    found = stored_kinds.run(tmp_path / "checkpoint")
    added = stored_kinds.ADDED if archive.name.startswith("before_one_engine") else frozenset()
    assert _elements(found, added) == _elements(expected, added)
    assert all(found.kept.values())


@each_of(SAVEPOINT)
def test_a_stream_starts_from_an_older_savepoint(
    spark_session: Any, expected: Harvest, archive: Path, tmp_path: Path
) -> None:
    unpack(archive, tmp_path)
    found = stored_kinds.run(tmp_path / "new", f"--savepoint_path={tmp_path / 'savepoint'}")
    assert _elements(found) == _elements(expected)


@each_of(BATCH)
def test_a_batch_job_of_the_same_versions_continues(
    spark_session: Any, archive: Path, tmp_path: Path
) -> None:
    """Others are refused: the error names both versions, and says what to do."""
    unpack(archive, tmp_path)
    job = batch_job(spark_session, tmp_path)
    content = (job.folder / SUBMISSION).read_bytes()
    stored = stored_submission.decode(content, SUBMISSION).versions
    own = IN_PROCESS if spark_session is None else versions_of(spark_session.version[0])
    if stored == own:
        assert _results(job) == _undisturbed(spark_session, tmp_path / "undisturbed")
        assert not job.names()
    else:
        with pytest.raises(IncompatibleCheckpointError, match="or remove the folder") as caught:
            job.start()
        assert caught.value.differences == _differences(stored, own)


@each_of(SERVER)
def test_a_job_of_a_server_of_the_same_versions_continues(
    spark_session: Any, archive: Path, tmp_path: Path
) -> None:
    """See above. Jobs of these servers run in the process of the test."""
    unpack(archive, tmp_path)
    with serving(tmp_path, versions=dict(IN_PROCESS)) as server:
        (job,) = server.jobs.all()
        state = state_of(job)
        said = [each.message_text for each in job.record.messages.log.events()]
        if archive.name.startswith(this_release()) and state == "DONE":
            found = {name: count for name, count in counters(job).items() if name != "counted"}
            assert found == _undisturbed(None, tmp_path / "undisturbed")
        else:
            assert state == "FAILED"
            assert "a server of those versions continues it" in said[-1]
            assert ": was " in said[-1]


@pytest.mark.parametrize("kind", KINDS)
def test_there_are_archives_of_this_version(kind: str) -> None:
    names = [each.name for each in archives(kind)]
    assert any(name.startswith(this_release()) for name in names)


def test_archives_are_never_written_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not even if only one of them is there: the others would have a later layout."""
    monkeypatch.setattr(stored_releases, "FOLDER", tmp_path)
    there = stored_releases.path_of(BATCH)
    there.write_bytes(b"an earlier layout")
    with pytest.raises(SystemExit, match=f"has {there.name} already.* set the next version"):
        stored_releases.main()
    assert [each.name for each in tmp_path.iterdir()] == [there.name]
    assert there.read_bytes() == b"an earlier layout"


def test_elements_from_before_the_stop_are_in_the_results(expected: Harvest) -> None:
    """Otherwise the checkpoint would have nothing of that kind. Only a reshuffle stores nothing."""
    reshuffled = "reshuffle in fixed"
    assert {numbers for _, numbers in expected[reshuffled]} == {(13,), (14,), (15,), (16,)}
    for label in expected.kept.keys() - {reshuffled}:
        assert any(0 < number <= 12 for _, some in expected[label] for number in some), label


def _elements(found: Harvest, without: frozenset[str] = frozenset()) -> dict[str, Counter[Any]]:
    return {
        label: Counter((each.value, each.timestamp.micros, str(each.window)) for each in kept)
        for label, kept in found.kept.items()
        if label not in without
    }


def _results(job: Job) -> dict[str, int]:
    return stored_batch.results(job.start().metrics().query()["counters"])


def _undisturbed(spark: Any, folder: Path) -> dict[str, int]:
    return _results(batch_job(spark, folder))


def _differences(stored: Any, own: Any) -> tuple[str, ...]:
    return tuple(
        f"{name}: was {before}, is {own[name]}"
        for name, before in stored.items()
        if own[name] != before
    )
