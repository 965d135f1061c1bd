"""Starts of a program whose folder cannot be read or written for a moment."""

import errno
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import CheckpointStorageError, OptionsError
from beam_spark_runner.in_process.session import InProcessSession
from beam_spark_runner.job.run import program_recovery
from beam_spark_runner.job.run.program_recovery import ProgramRecovery
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.recovery.batch_start import ENDED
from beam_spark_runner.recovery.job_submissions import decision_name, submission_name
from beam_spark_runner.storage.mounted_folder import MountedFolder

_CALLS = ("names", "folders", "read", "create", "make", "put", "delete", "remove")


class Away:
    """Folders of which one call fails: before or after it has had its effect."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.nth, self.times, self.calls = 0, 1, 0
        self.has_effect = False
        self.slept: list[float] = []
        monkeypatch.setattr(program_recovery, "time", self)
        for name in _CALLS:
            monkeypatch.setattr(MountedFolder, name, self._call(getattr(MountedFolder, name)))

    def _call(self, real: Any) -> Any:
        def call(folder: MountedFolder, *arguments: Any, **named: Any) -> Any:
            self.calls += 1
            if self.nth <= self.calls < self.nth + self.times:
                if self.has_effect:
                    real(folder, *arguments, **named)
                raise OSError(errno.EIO, "away")
            return real(folder, *arguments, **named)

        return call

    def fail(self, nth: int, *, times: int = 1, has_effect: bool = False) -> None:
        self.nth, self.times, self.has_effect, self.calls = nth, times, has_effect, 0

    # As the module ``time``.

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def monotonic(self) -> float:
        return sum(self.slept)

    def time(self) -> float:
        return 0.0


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Away:
    return Away(monkeypatch)


def pipeline_with(file: Path) -> beam_runner_api_pb2.Pipeline:
    """Return a pipeline whose environment has a file."""
    file.write_text("content")
    built = beam.Pipeline()
    built | beam.Impulse()
    pipeline = built.to_runner_api()
    for environment in pipeline.components.environments.values():
        payload = beam_runner_api_pb2.ArtifactFilePayload(path=str(file))
        environment.dependencies.add(
            type_urn=urns.ARTIFACT_FILE, type_payload=payload.SerializeToString()
        )
    return pipeline


class Program:
    """A program that is started again and again.

    Args:
        folder: Of all that it needs.
    """

    def __init__(self, folder: Path) -> None:
        self.place = folder / "job"
        self._pipeline = pipeline_with(folder / "file")
        self._scratch = folder / "scratch"
        self._scratch.mkdir()
        flags = ["--batch_job_recovery", f"--checkpoint_dir={self.place}"]
        self._options = PipelineOptions(flags)

    def submit(self) -> tuple[ProgramRecovery, bool]:
        """Start; return the start, and whether it has found an earlier one."""
        recovery = ProgramRecovery(RunnerConfig.from_options(self._options))
        prepared: Any = SimpleNamespace(main_classes={})
        found = recovery.submit(
            self._pipeline, self._options, prepared, InProcessSession(), lambda: self._scratch
        )
        return recovery, found is not None

    def files(self) -> Iterator[str]:
        """Yield the names of the files in the folder, and in that of the job."""
        for each in self.place.rglob("*"):
            if each.is_file():
                yield each.name


@pytest.mark.parametrize("has_effect", [False, True])
@pytest.mark.parametrize("is_first", [True, False])
def test_storage_that_is_away_for_a_moment_is_waited_for(
    away: Away, tmp_path: Path, *, is_first: bool, has_effect: bool
) -> None:
    nth, has_failed = 0, True
    while has_failed:
        nth += 1
        (folder := tmp_path / str(nth)).mkdir()
        program = Program(folder)
        if not is_first:
            away.fail(0)
            program.submit()
        away.fail(nth, has_effect=has_effect)
        _, has_found = program.submit()
        assert has_found is not is_first
        has_failed = len(away.slept) == nth
        names = {submission_name("1" * 32), decision_name("1" * 32), "1" * 64}  # a digest
        assert sorted(map(len, program.files())) == sorted(map(len, names))
    assert nth > 8


@pytest.mark.parametrize("has_effect", [False, True])
def test_the_end_of_a_job_is_found_whenever_storage_is_away(
    away: Away, tmp_path: Path, *, has_effect: bool
) -> None:
    nth, has_failed = 0, True
    while has_failed:
        nth += 1
        (folder := tmp_path / str(nth)).mkdir()
        program = Program(folder)
        away.fail(0)
        program.submit()
        (own,) = program.place.glob("job-*")
        (own / ENDED).write_text('["6d"]')
        away.fail(nth, has_effect=has_effect)
        recovery, _ = program.submit()
        has_failed = len(away.slept) == nth
        if recovery.done_metrics is None:  # it was removed, and the answer was lost
            assert has_effect
        else:
            assert recovery.done_metrics == (b"m",)
            assert not list(program.files())
    assert nth > 8


def test_storage_that_stays_away_is_an_error_after_two_minutes(away: Away, tmp_path: Path) -> None:
    away.fail(3, times=1_000)
    with pytest.raises(CheckpointStorageError, match="away"):
        Program(tmp_path).submit()
    assert 120 <= sum(away.slept) < 150


def test_a_folder_that_cannot_be_made_is_an_error_at_once(away: Away, tmp_path: Path) -> None:
    (tmp_path / "job").write_text("a file")
    with pytest.raises(OptionsError, match="could not make it"):
        Program(tmp_path).submit()
    assert not away.slept
