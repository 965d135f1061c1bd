"""Callbacks of bundle finalization: once the output of their bundle is there to stay, and once."""

import logging
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.transforms.core import RestrictionProvider

from beam_spark_runner.core.errors import BundleFailedError
from tests.harvest import PROCESS, run
from tests.spark.transports import TRANSPORTS


class Finalizes(beam.DoFn):  # type: ignore[misc]
    """Leaves a file for each element once it hears that the bundle's output is accepted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def process(
        self, element: int, finalizer: Any = beam.DoFn.BundleFinalizerParam
    ) -> Iterator[int]:
        path = self._folder / f"{element}-{uuid.uuid4().hex}"
        finalizer.register(path.touch)
        if element == 13:
            raise ValueError("on purpose")
        yield element


def finalized(folder: Path) -> list[int]:
    return sorted(int(path.name.partition("-")[0]) for path in folder.iterdir())


@pytest.mark.parametrize("flags", TRANSPORTS)
def test_callbacks_run_once_by_the_end_of_the_job(
    spark_session: Any, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    check_that_callbacks_run_once(spark_session, tmp_path, *flags)


@pytest.mark.spark
def test_callbacks_run_once_in_workers(on_spark: Any, tmp_path: Path) -> None:
    check_that_callbacks_run_once(on_spark, tmp_path)


def check_that_callbacks_run_once(spark: Any, tmp_path: Path, *flags: str) -> None:
    def build(p: beam.Pipeline) -> None:
        numbers = p | beam.Create(range(10), reshuffle=True) | beam.ParDo(Finalizes(tmp_path))
        numbers | beam.Map(lambda n: (n % 3, n)) | beam.GroupByKey()

    run(spark, build, *flags)
    assert finalized(tmp_path) == list(range(10))


@pytest.mark.parametrize("flags", TRANSPORTS)
def test_callbacks_of_a_job_that_fails_do_not_run(
    spark_session: Any, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    def build(p: beam.Pipeline) -> None:
        p | beam.Create([1, 2, 3, 13], reshuffle=True) | beam.ParDo(Finalizes(tmp_path))

    with pytest.raises(BundleFailedError):
        run(spark_session, build, *flags)
    # A next job in the same workers does not run them either.
    run(spark_session, lambda p: p | beam.Create([1]) | beam.Map(print), *flags)
    assert finalized(tmp_path) == []


def test_a_later_step_of_the_same_job_sees_them_run(spark_session: Any, tmp_path: Path) -> None:
    """A side input ends the Spark job in which they were registered."""

    def wait_for_the_others(_: int, side: int) -> int:
        deadline = time.monotonic() + 60
        while len(finalized(tmp_path)) < side:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return side

    def build(p: beam.Pipeline) -> None:
        numbers = p | beam.Create(range(4)) | beam.ParDo(Finalizes(tmp_path))
        count = numbers | beam.combiners.Count.Globally()
        (
            p
            | "one" >> beam.Create([1])
            | beam.Map(wait_for_the_others, beam.pvalue.AsSingleton(count))
        )

    run(spark_session, build)
    assert finalized(tmp_path) == list(range(4))


@pytest.mark.parametrize(
    "flags",
    [(), pytest.param(PROCESS, marks=pytest.mark.rare)],
    ids=["embedded", "PROCESS"],
)
def test_what_a_callback_raises_is_logged(
    spark_session: Any, caplog: pytest.LogCaptureFixture, flags: tuple[str, ...]
) -> None:
    class Raises(beam.DoFn):  # type: ignore[misc]
        def process(self, element: int, finalizer: Any = beam.DoFn.BundleFinalizerParam) -> None:
            def fail() -> None:
                raise RuntimeError("in a callback")

            finalizer.register(fail)

    caplog.set_level(logging.WARNING)
    result = run(spark_session, lambda p: p | beam.Create([1]) | beam.ParDo(Raises()), *flags)
    assert result.state == "DONE"
    assert any("in a callback" in each.message_text for each in result.messages())


def test_without_a_backchannel_they_do_not_run_and_the_log_says_so(
    spark_session: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def build(p: beam.Pipeline) -> None:
        p | beam.Create([1, 2]) | "Finalize" >> beam.ParDo(Finalizes(tmp_path))

    assert run(spark_session, build, "--backchannel=off").state == "DONE"
    assert finalized(tmp_path) == []
    assert "Finalize: callbacks of bundle finalization will not run" in caplog.text


class Polls(RestrictionProvider):  # type: ignore[misc]
    def initial_restriction(self, element: Any) -> OffsetRange:
        return OffsetRange(0, 1_000)

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, element: Any, restriction: OffsetRange) -> int:
        return int(restriction.size())


POLLS = beam.DoFn.RestrictionParam(Polls())


@pytest.mark.parametrize(
    "flags",
    [(), pytest.param(PROCESS, marks=pytest.mark.rare), ("--parallelism=1",)],
    ids=["embedded", "PROCESS", "one task"],
)
def test_a_splittable_dofn_waits_for_its_own(
    spark_session: Any, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    class UntilFinalized(beam.DoFn):  # type: ignore[misc]
        def process(
            self,
            element: str,
            finalizer: Any = beam.DoFn.BundleFinalizerParam,
            tracker: Any = POLLS,
        ) -> Iterator[str]:
            if not tracker.try_claim(tracker.current_restriction().start):
                return
            if not (tmp_path / "finalized").exists():
                finalizer.register((tmp_path / "finalized").touch)
                time.sleep(0.05)
                tracker.defer_remainder()
                return
            yield element
            tracker.try_claim(1_000)

    folder = tmp_path / "found"
    folder.mkdir()

    def build(p: beam.Pipeline) -> None:
        found = p | beam.Create(["a"]) | beam.ParDo(UntilFinalized())
        found | beam.Map(lambda name: (folder / name).touch())

    run(spark_session, build, "--sdf_round_budget=0.3", *flags)
    assert [path.name for path in folder.iterdir()] == ["a"]
