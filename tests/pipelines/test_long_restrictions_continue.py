"""Restrictions of batch pipelines that are committed while they are processed."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import apache_beam as beam
import pytest

from beam_spark_runner.storage.mounted_folder import MountedFolder
from tests.harness.processes import wait_for
from tests.pipelines.dying_drivers import Died
from tests.pipelines.recoverable import RESTRICTION, Job

SIZES = (3, 4, 5)  # none is so large that other tasks should help with it
FLAGS = (
    "--parallelism=1",
    "--sdf_round_budget=1000",
    "--operator_coordinator_snapshot_min_pause=0.001",
)


class Slow(beam.DoFn):  # type: ignore[misc]
    """Waits after each claim until the rest of the restriction is left to others."""

    def __init__(self, notes: Path) -> None:
        super().__init__()
        self._notes = notes

    def process(self, element: int, tracker: Any = RESTRICTION) -> Iterator[str]:
        restriction = tracker.current_restriction()
        for position in range(restriction.start, restriction.stop):
            if not tracker.try_claim(position):
                return
            with self._notes.open("a") as notes:
                notes.write(f"{position} of {element}\n")
            yield f"{position} of {element}"
            if position + 1 < restriction.stop:
                wait_for(lambda: tracker.current_restriction().stop < restriction.stop)


def test_claims_that_were_committed_are_not_repeated(spark_session: Any, tmp_path: Path) -> None:
    notes = tmp_path / "notes"

    def build(p: beam.Pipeline, out: Path) -> None:
        positions = p | beam.Create(SIZES) | "read" >> beam.ParDo(Slow(notes))
        positions | beam.io.WriteToText(str(out / "positions"))

    job = Job(spark_session, tmp_path, build, *FLAGS)
    real, kept = MountedFolder.create, ""

    def create(folder: Any, name: str, *arguments: Any, **named: Any) -> bool:
        nonlocal kept
        is_commit = name.endswith(".manifest")
        if is_commit and len(kept.splitlines()) > 3:
            raise Died
        made = real(folder, name, *arguments, **named)
        if is_commit and notes.exists():
            kept = notes.read_text()
        return made

    with mock.patch.object(MountedFolder, "create", create), pytest.raises(Died):
        job.start()
    for record in max(job.own.glob("work-*")).glob("*.done"):
        record.unlink()  # the driver has died before the tasks had finished
    repeated = notes.read_text().removeprefix(kept).splitlines()

    job.start()
    positions = sorted(f"{at} of {size}" for size in SIZES for at in range(size))
    assert job.lines() == positions
    assert Counter(notes.read_text().splitlines()) == Counter([*positions, *repeated])
    assert job.names() == []


def test_without_rounds_nothing_is_left(spark_session: Any, tmp_path: Path) -> None:
    def build(p: beam.Pipeline, out: Path) -> None:
        positions = p | beam.Create([3]) | beam.ParDo(Quick())
        positions | beam.Map(str) | beam.io.WriteToText(str(out / "bundles"))

    job = Job(spark_session, tmp_path, build, *FLAGS, "--sdf_round_budget=0")
    job.start()
    assert len(set(job.lines())) == 1


class Quick(beam.DoFn):  # type: ignore[misc]
    """Returns the first position of its restriction for each of its positions."""

    def process(self, element: int, tracker: Any = RESTRICTION) -> Iterator[int]:
        first = position = tracker.current_restriction().start
        while tracker.try_claim(position):
            yield first
            position += 1
