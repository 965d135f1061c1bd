"""Two starts of one batch job: the later one takes it over."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from beam_spark_runner.job.run import recovery
from beam_spark_runner.recovery.batch_start import ENDED, BatchStart
from beam_spark_runner.recovery.manifest import FencedError, fence_name
from tests.harness.processes import wait_for
from tests.pipelines.dying_drivers import Deaths
from tests.pipelines.recoverable import Job, groups_and_side_input


def test_the_older_of_two_starts_stops(spark_session: Any, tmp_path: Path) -> None:
    job = Job(spark_session, tmp_path, groups_and_side_input)

    def fence_of(start: int) -> Path:
        return job.own / fence_name(start)

    real = Deaths._watched

    class Rival(Deaths):
        """Claims a higher fence when the driver is about to commit a second time."""

        def _watched(self, change: Any) -> Any:
            watched = real(self, change)

            def with_rival(folder: Any, *arguments: Any, **named: Any) -> Any:
                if arguments[:1] == ("batch-000000000002.manifest",) and not fence_of(2).exists():
                    fence_of(2).write_text(json.dumps({"commit": 1, "finished": 0}))
                return watched(folder, *arguments, **named)

            return with_rival

    with Rival(job.folder).striking(), pytest.raises(FencedError, match="has taken over"):
        job.start()
    assert fence_of(2).exists()
    job.start()
    assert job.names() == []


def test_a_start_that_waits_for_user_code_notices_a_later_one(
    spark_session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "_LOOKS_EVERY_S", 0.05)
    started = tmp_path / "started"

    def wait(x: Any) -> Any:
        started.touch()
        while True:
            time.sleep(0.01)

    def build(p: beam.Pipeline, out: Path) -> None:
        p | beam.Create([1]) | beam.Map(wait)

    job = Job(spark_session, tmp_path, build)

    def claim() -> None:
        wait_for(started.exists)
        (job.own / fence_name(2)).write_text(json.dumps({"commit": 0, "finished": 0}))

    rival = threading.Thread(target=claim)
    rival.start()
    with pytest.raises(FencedError, match="has taken over"):
        job.start()
    rival.join()


def test_a_job_that_ends_while_it_is_claimed_does_not_run_again(
    spark_session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifests of a job are removed once its end is stored."""
    job = Job(spark_session, tmp_path, groups_and_side_input)

    def claim(storage: Any, *arguments: Any, **named: Any) -> BatchStart:
        storage.create(ENDED, b"[]")
        return BatchStart(storage, *arguments, **named)

    monkeypatch.setattr(recovery, "BatchStart", claim)
    with pytest.raises(FencedError):
        job.start()
    assert job.lines() == []
