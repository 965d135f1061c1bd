"""Runs a segment once, and says what became of it: the one place that judges a failed Spark job."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from beam_spark_runner.core.errors import RunnerError, SparkJobError, StuckBundleError
from beam_spark_runner.core.ids import SegmentId
from beam_spark_runner.engine.rows.reports import error_of
from beam_spark_runner.scheduling import segments
from beam_spark_runner.scheduling.attempts import (
    Accepted,
    Ambiguous,
    Failed,
    Rejected,
    Verdict,
)
from beam_spark_runner.spark.driver.outputs import AmbiguousRowsError
from beam_spark_runner.spark.driver.spark_errors import machines_were_lost, reason_of

_LOGGER = logging.getLogger(__name__)


def _none(runs: Iterable[int] = ()) -> frozenset[SegmentId]:
    return frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One run of a segment.

    Attributes:
        segment: which segment.
        title: names it in warnings.
        run: runs its Spark jobs, and returns whether their output is accepted.
        check_cancelled: raises if the job is to end; then the Spark job has failed since it was
            cancelled.
        blamed_for: returns the names of the steps that an exception of Spark's is blamed on.
        reason_for: says why Spark has failed, for users.
        may_run_again: whether it has no effects that a further run would repeat; asked only once
            machines were lost.
        writers_in: returns the segments that have materialised rows in these runs (Spark jobs).
        writers_lost: returns the segments whose rows it reads, and which were lost with machines.
    """

    segment: SegmentId
    title: str
    run: Callable[[], Verdict]
    check_cancelled: Callable[[], None]
    blamed_for: Callable[[Exception], str]
    reason_for: Callable[[BaseException], str] = reason_of
    may_run_again: Callable[[], bool] = lambda: True
    writers_in: Callable[[Iterable[int]], frozenset[SegmentId]] = _none
    writers_lost: Callable[[], frozenset[SegmentId]] = _none


def attempt(this: Attempt) -> segments.Event:
    """Run a segment once, and return the event for ``SegmentOrder``.

    Raises:
        BundleFailedError: user code failed in all attempts that Spark makes at a task.
        SparkJobError: Spark failed, for a reason that would be the same again.
        RunnerError: the runner itself has found what is wrong.
    """
    try:
        verdict = this.run()
    except RunnerError:
        raise
    except AmbiguousRowsError as error:
        verdict = error.verdict
    except Exception as error:
        return _after_exception(this, error)
    match verdict:
        case Accepted():
            return segments.Ran(this.segment)
        case Failed(failure):
            raise error_of(failure)
        case Ambiguous(runs=runs, reason=reason):
            if writers := this.writers_in(runs):
                return _lost(this, writers, reason)
        case Rejected(reason=reason):
            pass
    _LOGGER.warning("%s runs again: %s", this.title, reason)
    return segments.Rejected(this.segment, reason)


def raise_unless_lost(
    error: Exception,
    check_cancelled: Callable[[], None],
    blamed_for: Callable[[Exception], str],
    reason_for: Callable[[BaseException], str] = reason_of,
) -> None:
    """Raise what an exception of Spark's means, unless Spark gave up because machines were lost.

    Args:
        error: the exception.
        check_cancelled: see ``Attempt``, as for the others.
        blamed_for: see there.
        reason_for: see there.
    """
    check_cancelled()
    if stuck := StuckBundleError.found_in(str(error)):
        raise stuck from error
    if not machines_were_lost(error):
        raise SparkJobError(blamed_for(error), reason_for(error)) from error


def _after_exception(this: Attempt, error: Exception) -> segments.Event:
    raise_unless_lost(error, this.check_cancelled, this.blamed_for, this.reason_for)
    if not this.may_run_again():
        raise SparkJobError(this.blamed_for(error), this.reason_for(error)) from error
    reason = reason_of(error)
    if writers := this.writers_lost():
        return _lost(this, writers, reason)
    _LOGGER.warning("%s runs again: %s", this.title, reason)
    return segments.Crashed(this.segment, reason)


def _lost(this: Attempt, writers: frozenset[SegmentId], reason: str) -> segments.Lost:
    _LOGGER.warning(
        "%s: rows of %d earlier segment(s) are computed again: %s", this.title, len(writers), reason
    )
    return segments.Lost(this.segment, writers, reason)
