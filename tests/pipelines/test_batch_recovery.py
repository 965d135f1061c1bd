"""Batch pipelines whose drivers die at any moment, and whose later starts continue."""

import contextlib
import errno
import logging
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.core.errors import (
    BundleFailedError,
    OptionsError,
)
from beam_spark_runner.in_process.session import InProcessSession
from beam_spark_runner.recovery.batch_start import CrashLoopError
from beam_spark_runner.recovery.manifest import IncompatibleCheckpointError
from beam_spark_runner.spark.session.handle import SessionHandle
from beam_spark_runner.storage.mounted_folder import MountedFolder
from tests.harness.processes import wait_for
from tests.harvest import counter_of
from tests.pipelines.dying_drivers import Deaths, Died
from tests.pipelines.recoverable import (
    PIPELINES,
    Build,
    Job,
    groups_and_side_input,
)

pytestmark = pytest.mark.filterwarnings(  # of a driver that dies when its job ends
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)


def counted(result: Any) -> int:
    return counter_of(result, "counted")


def undisturbed(name: str, spark: Any, folder: Path) -> tuple[list[str], int, int]:
    """Return the output of a pipeline, its counter, and how often it changes its folder."""
    build, flags = PIPELINES[name]
    job = Job(spark, folder / "undisturbed", build, *flags)
    deaths = Deaths(job.folder)
    with deaths.striking():
        result = job.start()
    assert job.names() == []
    return job.lines(), counted(result), len(deaths.changes)


def dies_and_continues(
    name: str, spark: Any, folder: Path, at: int, *, is_done: bool
) -> tuple[Job, Any]:
    build, flags = PIPELINES[name]
    job = Job(spark, folder, build, *flags)
    deaths = Deaths(job.folder, at, is_done=is_done)
    with deaths.striking():
        try:
            result = job.start()
        except Died:
            result = None
    if result is None or job.names():
        result = job.start()
    return job, result


@pytest.mark.parametrize("name", PIPELINES)
def test_the_output_is_that_of_an_undisturbed_run(
    spark_session: Any, tmp_path: Path, name: str
) -> None:
    """Two moments of each pipeline; the rare test has all."""
    lines, count, changes = undisturbed(name, spark_session, tmp_path)
    for at in sorted(random.Random(name).sample(range(changes), 2)):
        check(name, spark_session, tmp_path / f"at {at}", at, lines, count)


@pytest.mark.rare
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", PIPELINES)
def test_the_output_is_that_of_an_undisturbed_run_at_all_moments(
    spark_session: Any, tmp_path: Path, name: str
) -> None:
    lines, count, changes = undisturbed(name, spark_session, tmp_path)
    for at in range(changes):
        check(name, spark_session, tmp_path / f"at {at}", at, lines, count)


def check(name: str, spark: Any, folder: Path, at: int, lines: list[str], count: int) -> None:
    for is_done in (False, True):
        job, result = dies_and_continues(name, spark, folder / str(is_done), at, is_done=is_done)
        if name == "random step":
            assert {each for each in Counter(job.lines()).values()} == {2}
        else:
            assert job.lines() == lines
        assert job.names() == []
        assert not [f for f in job.out.rglob("*") if f.is_dir() and "temp" in f.name]
        assert counted(result) == count


def failing(file: Path) -> Build:
    """Return a pipeline whose user code fails as long as a file exists."""

    def check(line: str) -> str:
        if file.exists() and line.startswith("(4,"):
            raise ValueError("not now")
        with (file.parent / "bundles").open("a") as notes:
            notes.write(f"{line}\n")
        return line

    def build(p: beam.Pipeline, out: Path) -> None:
        sums = (
            p
            | beam.Create([(x % 7, x) for x in range(70)])
            | beam.CombinePerKey(sum)
            | beam.Map(str)
            | "check" >> beam.Map(check)
        )
        sums | beam.io.WriteToText(str(out / "sums"))

    return build


@pytest.fixture
def failed(spark_session: Any, tmp_path: Path) -> Job:
    """A job whose first start has ended with an error of user code, after two commits."""
    obstacle = tmp_path / "obstacle"
    obstacle.touch()
    job = Job(spark_session, tmp_path / "failed", failing(obstacle))
    with pytest.raises(BundleFailedError, match="not now"):
        job.start()
    obstacle.unlink()
    return job


def records(job: Job) -> list[Path]:
    """Return the finish records of the Spark job that has failed."""
    return list(max(job.own.glob("work-*")).glob("*.done"))


def test_a_partition_that_has_finished_does_not_run_again(failed: Job, tmp_path: Path) -> None:
    before = (tmp_path / "bundles").read_text().splitlines()
    assert records(failed)
    failed.start()
    lines = Counter((tmp_path / "bundles").read_text().splitlines())
    assert sorted(lines) == sorted(f"({x}, {sum(range(x, 70, 7))})" for x in range(7))
    # Of what had run, only what the failed partition had done until then runs again.
    assert sum(lines.values()) - 7 < len(before)
    assert failed.lines() == sorted(lines)


@pytest.mark.parametrize(("more", "keeps"), [(2, True), (3, False)])
def test_a_much_larger_cluster_gets_more_tasks(
    spark_session: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    more: int,
    keeps: bool,
) -> None:
    (obstacle := tmp_path / "obstacle").touch()
    job = Job(spark_session, tmp_path / "failed", failing(obstacle))
    with pytest.raises(BundleFailedError, match="not now"):
        job.start("--parallelism=3")
    obstacle.unlink()
    _, *others = records(job)
    for record in others:
        record.unlink()
    with contextlib.ExitStack() as patched, caplog.at_level(logging.INFO):
        for session in (InProcessSession, SessionHandle):
            slots = mock.Mock(return_value=more * 3)
            patched.enter_context(mock.patch.object(session, "slots", slots))
        job.start(f"--parallelism={more * 3}")
    assert job.lines() == sorted(f"({x}, {sum(range(x, 70, 7))})" for x in range(7))
    assert ("1 of 3 partitions have finished already" in caplog.text) is keeps


def damage(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("harm", [damage, Path.unlink])
def test_a_partition_with_a_harmed_finish_record_runs_again(
    failed: Job, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    before = (tmp_path / "bundles").read_text().splitlines()
    for record in records(failed):
        harm(record)
    failed.start()
    lines = Counter((tmp_path / "bundles").read_text().splitlines())
    assert sum(lines.values()) == 7 + len(before)
    assert failed.names() == []


@pytest.mark.parametrize("harm", [damage, Path.unlink])
def test_harmed_rows_are_made_again(failed: Job, harm: Callable[[Path], None]) -> None:
    """Also those of partitions that have finished with the rows that are harmed."""
    for rows in failed.folder.glob("*/*.rows"):
        harm(rows)
    result = failed.start()
    assert failed.lines() == sorted(f"({x}, {sum(range(x, 70, 7))})" for x in range(7))
    assert failed.names() == []
    assert result.state == PipelineState.DONE


def test_harmed_rows_that_are_read_without_an_exchange_are_made_again(
    spark_session: Any, tmp_path: Path
) -> None:
    obstacle = tmp_path / "obstacle"
    obstacle.touch()

    def check(x: Any, of: int) -> str:
        if obstacle.exists():
            raise ValueError("not now")
        return f"{x} of {of}"

    def build(p: beam.Pipeline, out: Path) -> None:
        sums = p | beam.Create([(x % 7, x) for x in range(70)]) | beam.CombinePerKey(sum)
        total = sums | beam.Values() | beam.CombineGlobally(sum)
        shares = sums | "check" >> beam.Map(check, beam.pvalue.AsSingleton(total))
        shares | beam.io.WriteToText(str(out / "shares"))

    job = Job(spark_session, tmp_path, build, "--parallelism=2")
    with pytest.raises(BundleFailedError, match="not now"):
        job.start()
    obstacle.unlink()
    for rows in job.folder.glob("*/*.rows"):
        rows.unlink()
    job.start()
    total = sum(range(70))
    assert job.lines() == sorted(f"({x}, {sum(range(x, 70, 7))}) of {total}" for x in range(7))


def test_a_folder_that_is_full_for_a_while_is_outlasted(
    spark_session: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In turn for a manifest, a finish record, and rows."""
    job = Job(spark_session, tmp_path, groups_and_side_input)
    real, failures = MountedFolder.create, []

    def create(folder: Any, name: str, *arguments: Any, **named: Any) -> bool:
        kind = name.rpartition(".")[2]
        if kind in ("manifest", "done") and kind not in failures:
            failures.append(kind)
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(folder, name, *arguments, **named)

    with mock.patch.object(MountedFolder, "create", create), caplog.at_level(logging.WARNING):
        job.start()
    assert sorted(failures) == ["done", "manifest"]
    assert caplog.text.count("No space left on device; trying again in") == 2
    assert len(job.lines()) == 5
    assert job.names() == []


def test_a_folder_of_a_stream_is_refused(spark_session: Any, tmp_path: Path) -> None:
    job = Job(spark_session, tmp_path, groups_and_side_input)
    job.folder.mkdir()
    (job.folder / "main-000000000001.manifest").touch()
    with pytest.raises(OptionsError, match="has the checkpoint of a streaming pipeline"):
        job.start()


def test_a_stream_refuses_the_folder_of_a_batch_job(failed: Job) -> None:
    with pytest.raises(OptionsError, match="has a batch job that can be continued"):
        failed.start("--streaming")
    failed.start()


def changed(p: beam.Pipeline, out: Path) -> None:
    numbers = p | beam.Create([("a", 1)]) | beam.CombinePerKey(max)
    numbers | beam.Map(str) | beam.io.WriteToText(str(out / "other"))


def test_another_pipeline_is_refused(failed: Job) -> None:
    before = failed.names()
    with pytest.raises(IncompatibleCheckpointError) as raised:
        failed.start(build=changed)
    assert "the step check is missing" in str(raised.value)
    assert "WriteToText" in str(raised.value)
    assert failed.names() == before
    failed.start()


def test_other_options_of_the_user_are_refused(failed: Job) -> None:
    with pytest.raises(IncompatibleCheckpointError, match="--project: was not set, is mine"):
        failed.start("--project=mine")
    failed.start("--parallelism=3", "--max_parallelism=9", "--temp_location=/tmp")


def test_start_options(failed: Job, spark_session: Any, tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match="an earlier start has begun this job"):
        failed.start("--restart=fresh")
    failed.start("--restart=resume")
    with pytest.raises(OptionsError, match="no job has begun in --checkpoint_dir"):
        failed.start("--restart=resume")
    failed.start("--restart=fresh")


def test_a_job_that_kills_its_drivers_is_not_started_forever(
    spark_session: Any, tmp_path: Path
) -> None:
    job = Job(spark_session, tmp_path, groups_and_side_input)

    def die() -> None:
        deaths = Deaths(job.folder, 2, within="/work-000000000001")
        with deaths.striking(), pytest.raises(Died):
            job.start()

    for _ in range(3):
        die()
    with pytest.raises(CrashLoopError, match="3 starts of this job have ended at the same place"):
        job.start()
    job.start("--restart=resume")


def test_what_the_option_needs(spark_session: Any, tmp_path: Path) -> None:
    job = Job(spark_session, tmp_path, groups_and_side_input)
    job._flags = ["--batch_job_recovery", "--progress=off"]
    with pytest.raises(OptionsError, match="needs a --checkpoint_dir"):
        job.start()


def test_disabled_it_leaves_no_file(spark_session: Any, tmp_path: Path) -> None:
    job = Job(spark_session, tmp_path, groups_and_side_input)
    job._flags.remove("--batch_job_recovery")
    job.start()
    assert not job.folder.exists()


def test_a_cancelled_start_says_what_continues(
    spark_session: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    started, obstacle = tmp_path / "started", tmp_path / "obstacle"
    obstacle.touch()

    def wait(x: Any) -> Any:
        started.touch()
        while obstacle.exists():
            time.sleep(0.01)
        return x

    def build(p: beam.Pipeline, out: Path) -> None:
        lines = p | beam.Create(["a", "b"]) | beam.Reshuffle() | beam.Map(wait)
        lines | beam.io.WriteToText(str(out / "lines"))

    job = Job(spark_session, tmp_path / "cancelled", build)
    p = beam.Pipeline(
        runner=SparkPortableRunner(spark_session), options=PipelineOptions(job._flags)
    )
    build(p, job.out)
    result = p.run()
    wait_for(started.exists)
    with caplog.at_level(logging.WARNING):
        result.cancel()
    assert "the same command continues after " in caplog.text
    assert any(name.endswith(".stopped") for name in job.names())
    obstacle.unlink()
    job.start()
    assert job.lines() == ["a", "b"]
