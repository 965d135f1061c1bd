"""A Spark job that helps the first task of a segment."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from beam_spark_runner.backchannel.offers import Offer, Offers
from beam_spark_runner.driving.cluster import HelpFailedError
from beam_spark_runner.scheduling.attempts import Accepted, Failed, Failure, Report
from beam_spark_runner.spark.driver.helping_job import HelpingJob

OFFER = Offer(run=5, level=2, attempt=70, rows=b"rows")
RESULT: Any = SimpleNamespace(verdict=Accepted())


class Spark:
    """What the context uses of Spark."""

    def __init__(self) -> None:
        self.offers = Offers()
        self.cancelled = threading.Event()

    def cancel_spark_jobs(self) -> None:
        self.cancelled.set()


def helping(spark: Spark, help_with: Callable[[Offer], Any] | None) -> HelpingJob:
    return HelpingJob(spark.offers, spark.cancel_spark_jobs, OFFER.run, help_with)


def run_first(
    spark: Spark, job: HelpingJob, until: threading.Event, error: Exception | None = None
) -> None:
    """Run a first job that offers rows, and then ends, or fails."""
    with job:
        spark.offers.put(OFFER)
        assert until.wait(60)
        if error is not None:
            raise error


def test_a_job_that_offers_nothing_is_not_helped() -> None:
    spark = Spark()
    with helping(spark, lambda offer: pytest.fail("it has helped")) as job:
        pass
    assert job.result_for([Report(level=2, partition=0, attempt=70)]) is None
    assert not spark.cancelled.is_set()


def test_where_no_job_could_help_offers_are_dropped() -> None:
    spark = Spark()
    with helping(spark, None) as job:
        spark.offers.put(OFFER)
    assert job.result_for([Report(level=2, partition=0, attempt=70)]) is None


@pytest.mark.parametrize(
    ("attempt", "expected"),
    [
        pytest.param(70, RESULT, id="the attempt that has offered the rows"),
        pytest.param(71, None, id="another attempt, which has its rows itself"),
    ],
)
def test_help_counts_for_the_attempt_that_asked(attempt: int, expected: Any) -> None:
    spark = Spark()
    taken: list[Offer] = []

    def help_with(offer: Offer) -> Any:
        taken.append(offer)
        return RESULT

    with helping(spark, help_with) as job:
        spark.offers.put(OFFER)
        spark.offers.put(OFFER)  # by an attempt after it
    reports = [Report(level=each, partition=0, attempt=attempt + each - 2) for each in (1, 2)]
    assert job.result_for(reports) is expected
    assert taken == [OFFER]


def test_if_the_help_fails_the_first_job_is_ended_and_the_error_is_that_of_the_help() -> None:
    spark = Spark()

    def fail(offer: Offer) -> Any:
        raise ValueError("of the help")

    job, error = helping(spark, fail), RuntimeError("cancelled by Spark")
    with pytest.raises(ValueError, match="of the help"):
        run_first(spark, job, spark.cancelled, error)


def test_if_user_code_fails_in_the_help_the_first_job_is_ended() -> None:
    spark = Spark()
    failed: Any = SimpleNamespace(
        verdict=Failed(Failure(step="step", cause="cause", traceback_text="", kind="kind"))
    )
    job, error = helping(spark, lambda offer: failed), RuntimeError("cancelled by Spark")
    with pytest.raises(HelpFailedError) as caught:
        run_first(spark, job, spark.cancelled, error)
    assert caught.value.result is failed


def test_an_error_of_the_help_is_raised_though_the_first_job_has_ended_well() -> None:
    spark = Spark()

    def fail(offer: Offer) -> Any:
        raise ValueError("of the help")

    with pytest.raises(ValueError, match="of the help"), helping(spark, fail):
        spark.offers.put(OFFER)


def test_if_the_first_job_fails_the_help_is_ended() -> None:
    spark = Spark()
    begun = threading.Event()

    def help_with(offer: Offer) -> Any:
        begun.set()
        assert spark.cancelled.wait(60)
        raise RuntimeError("cancelled by Spark")

    job, error = helping(spark, help_with), KeyError("of the first job")
    with pytest.raises(KeyError, match="of the first job"):
        run_first(spark, job, begun, error)


def test_help_that_spark_gets_after_it_was_to_end_is_ended() -> None:
    spark = Spark()
    begun = threading.Event()
    was_ended: list[bool] = []

    def help_with(offer: Offer) -> Any:
        begun.set()
        assert spark.cancelled.wait(60)
        spark.cancelled.clear()  # the Spark job is submitted only now
        was_ended.append(spark.cancelled.wait(20))
        raise RuntimeError("cancelled by Spark")

    job, error = helping(spark, help_with), KeyError("of the first job")
    with pytest.raises(KeyError, match="of the first job"):
        run_first(spark, job, begun, error)
    assert was_ended == [True]


def test_if_user_code_of_the_first_job_has_failed_the_help_is_ended() -> None:
    spark = Spark()
    begun = threading.Event()

    def help_with(offer: Offer) -> Any:
        begun.set()
        assert spark.cancelled.wait(60)
        raise RuntimeError("cancelled by Spark")

    with helping(spark, help_with) as job:
        spark.offers.put(OFFER)
        assert begun.wait(60)
        job.stop()
    assert job.result_for([]) is None
