"""Helps the first task of a segment while one of its elements takes long."""

import logging
import threading
from collections.abc import Callable, Sequence

from beam_spark_runner.backchannel.offers import Offer, Offers
from beam_spark_runner.driving.cluster import HelpFailedError, JobResult
from beam_spark_runner.scheduling.attempts import Failed, Report

_AGAIN_S = 0.5
_LOGGER = logging.getLogger(__name__)


class HelpingJob:
    """See ``Helping``: it runs a segment's first Spark job, and another one if that needs help.

    The task of the first job offers the rows that it will not read. They are among its own rows,
    too: if it is another attempt that succeeds in the end, those count, and the help does not.

    Args:
        offers: of the tasks of the pipeline.
        cancel: cancels the Spark jobs of the pipeline that run now.
        run: the number of the first Spark job.
        help_with: runs the Spark job that helps, in its own thread; None: no job could help.
    """

    def __init__(
        self,
        offers: Offers,
        cancel: Callable[[], None],
        run: int,
        help_with: Callable[[Offer], JobResult] | None,
    ) -> None:
        self._offers, self._cancel = offers, cancel
        self._run_number = run
        self._help_with = help_with
        self._offer: Offer | None = None
        self._result: JobResult | None = None
        self._error: BaseException | None = None
        self._is_stopped = False
        self._thread = threading.Thread(
            target=self._wait_for_offer, name="beam-helping-job", daemon=True
        )

    def __enter__(self) -> "HelpingJob":
        if self._help_with is not None:
            self._offers.open(self._run_number)
            self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        """See ``Helping``."""
        if self._help_with is None:
            return
        has_failed_here = self._error is not None
        if any(raised) and not has_failed_here:
            self.stop()
        self._offers.close()
        while self._thread.is_alive():
            # Repeated for a Spark job that was submitted after the call.
            self._thread.join(_AGAIN_S if self._is_stopped else None)
            if self._is_stopped and self._thread.is_alive():
                self._cancel()
        if self._error is not None and not self._is_stopped:
            raise self._error from None

    def stop(self) -> None:
        """End the Spark job that helps, if it runs: nobody needs its result."""
        self._is_stopped = True
        if self._offer is not None:
            self._cancel()

    def result_for(self, reports: Sequence[Report]) -> JobResult | None:
        """Return the result of the job that has helped; None: none has helped these attempts.

        Args:
            reports: the reports of the first Spark job.
        """
        if self._offer is None:
            return None
        attempts = [report.attempt for report in reports if report.level == self._offer.level]
        return self._result if attempts == [self._offer.attempt] else None

    def _wait_for_offer(self) -> None:
        assert self._help_with is not None
        self._offer = self._offers.take()
        if self._offer is None or self._is_stopped:
            return
        _LOGGER.info("an element takes long: other tasks process those that wait for it")
        try:
            self._result = self._help_with(self._offer)
            if isinstance(self._result.verdict, Failed):
                raise HelpFailedError(self._result)
        except BaseException as error:
            self._error = error
            if not self._is_stopped:
                self._cancel()  # the first job, which waits for its element
