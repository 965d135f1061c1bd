"""Runs a segment once, and says what became of it: the one place that judges a failed job."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from beam_spark_runner.core.errors import (
    LostRowsError,
    OutputStorageError,
    RunnerError,
    SparkJobError,
    StuckBundleError,
)
from beam_spark_runner.core.ids import SegmentId
from beam_spark_runner.core.rendering import whole_message_of
from beam_spark_runner.driving.cluster import Failures
from beam_spark_runner.driving.output_rows import AmbiguousRowsError
from beam_spark_runner.driving.run_context import log_trouble
from beam_spark_runner.driving.segment_store import CommittedByOtherError
from beam_spark_runner.engine.rows.reports import error_of
from beam_spark_runner.observing.troubles import TroubleKind
from beam_spark_runner.scheduling import segments
from beam_spark_runner.scheduling.attempts import (
    Accepted,
    Ambiguous,
    Failed,
    Rejected,
    Verdict,
)


def _none(runs: Iterable[int] = ()) -> frozenset[SegmentId]:
    return frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One run of a segment.

    Attributes:
        segment: which segment.
        cluster: on which it runs.
        title: names it in warnings.
        run: runs its jobs, and returns whether their output is accepted.
        check_cancelled: raises if the pipeline is to end; then the run has failed since it was
            cancelled.
        blamed_for: returns the names of the steps that an exception of the cluster is blamed on.
        reason_for: says why it has failed, for users. None: the cluster does.
        may_run_again: whether it has no effects that a further run would repeat; asked only once
            machines were lost.
        writers_in: returns the segments that have materialised rows in these runs (Spark jobs).
        writers_lost: returns the segments whose rows it reads, and which were lost with machines.
        on_trouble: see ``RunSettings``.
    """

    segment: SegmentId
    cluster: Failures
    title: str
    run: Callable[[], Verdict]
    check_cancelled: Callable[[], None]
    blamed_for: Callable[[Exception], str]
    reason_for: Callable[[BaseException], str] | None = None
    may_run_again: Callable[[], bool] = lambda: True
    writers_in: Callable[[Iterable[int]], frozenset[SegmentId]] = _none
    writers_lost: Callable[[], frozenset[SegmentId]] = _none
    on_trouble: Callable[[TroubleKind, str], None] = log_trouble


def attempt(this: Attempt) -> segments.Event:
    """Run a segment once, and return the event for ``SegmentOrder``.

    Raises:
        BundleFailedError: user code failed in all attempts that Spark makes at a task.
        SparkJobError: Spark failed, for a reason that would be the same again.
        RunnerError: the runner itself has found what is wrong.
    """
    try:
        verdict = this.run()
    except LostRowsError as error:
        verdict = _of_lost_rows(error)
    except (RunnerError, CommittedByOtherError):
        raise
    except AmbiguousRowsError as error:
        verdict = error.verdict
    except Exception as error:
        lost = LostRowsError.found_in(whole_message_of(error))
        if lost is None:
            return _after_exception(this, error)
        this.check_cancelled()
        verdict = _of_lost_rows(lost)
    match verdict:
        case Accepted():
            return segments.RanSegment(this.segment)
        case Failed(failure):
            raise error_of(failure)
        case Ambiguous(runs=runs, reason=reason):
            if writers := this.writers_in(runs):
                return _lost(this, writers, reason)
        case Rejected(reason=reason):
            pass
    this.on_trouble(TroubleKind.REPEATED, f"{this.title} runs again: {reason}")
    return segments.Rejected(this.segment, reason)


def _of_lost_rows(error: LostRowsError) -> Ambiguous:
    return Ambiguous(frozenset({error.run}), str(error))


def can_be_read(
    is_complete: Callable[[], bool],
    cluster: Failures,
    check_cancelled: Callable[[], None],
    blamed_for: Callable[[Exception], str],
) -> bool:
    """Whether materialised rows are still there.

    Args:
        is_complete: reads all of them, and returns whether they are those that were accepted.
        cluster: see ``Attempt``, as for the others.
        check_cancelled: see there.
        blamed_for: see there.

    Raises:
        RunnerError: they cannot be read now, for a reason that does not mean that they are lost.
    """
    try:
        return is_complete()
    except LostRowsError:
        return False
    except RunnerError:
        raise
    except Exception as error:
        if LostRowsError.found_in(whole_message_of(error)) is None:
            _raise_unless_lost(error, cluster, check_cancelled, blamed_for)
        else:
            check_cancelled()
        return False


def _raise_unless_lost(
    error: Exception,
    cluster: Failures,
    check_cancelled: Callable[[], None],
    blamed_for: Callable[[Exception], str],
    reason_for: Callable[[BaseException], str] | None = None,
) -> None:
    """Raise what an exception of the cluster means, unless it gave up since machines were lost.

    Args:
        error: the exception.
        cluster: see ``Attempt``, as for the others.
        check_cancelled: see there.
        blamed_for: see there.
        reason_for: see there.
    """
    check_cancelled()
    text = whole_message_of(error)
    if found := StuckBundleError.found_in(text) or OutputStorageError.found_in(text):
        raise found from error
    if not cluster.machines_were_lost(error):
        reason = (reason_for or cluster.reason_of)(error)
        raise SparkJobError(blamed_for(error), reason) from error


def _after_exception(this: Attempt, error: Exception) -> segments.Event:
    _raise_unless_lost(error, this.cluster, this.check_cancelled, this.blamed_for, this.reason_for)
    if not this.may_run_again():
        reason = (this.reason_for or this.cluster.reason_of)(error)
        raise SparkJobError(this.blamed_for(error), reason) from error
    reason = this.cluster.reason_of(error)
    if writers := this.writers_lost():
        return _lost(this, writers, reason)
    this.on_trouble(TroubleKind.REPEATED, f"{this.title} runs again: {reason}")
    return segments.Crashed(this.segment, reason)


def _lost(this: Attempt, writers: frozenset[SegmentId], reason: str) -> segments.Lost:
    text = f"{this.title}: rows of {len(writers)} earlier segment(s) are computed again: {reason}"
    this.on_trouble(TroubleKind.REPEATED, text)
    return segments.Lost(this.segment, writers, reason)
