"""What becomes of Spark jobs of earlier starts, whose clients of Spark Connect have died."""

import logging
from collections.abc import Callable

from beam_spark_runner.driving.session import Session
from beam_spark_runner.recovery.batch_manifest import work_folder
from beam_spark_runner.recovery.batch_start import BatchStart, SparkClient, WorkFolders
from beam_spark_runner.recovery.finishes import all_have_finished, finished_partitions
from beam_spark_runner.spark.session.handle import SessionHandle

_LOGGER = logging.getLogger(__name__)
_POLL_S = 0.5


def client_of(session: Session, tag: str) -> SparkClient | None:
    """Return the client that a start is. None: its Spark jobs end with it.

    Args:
        session: The session in which it runs.
        tag: The tag of its Spark jobs.
    """
    if not isinstance(session, SessionHandle) or not session.is_connect:
        return None
    return SparkClient(session.application_id(), session.session_id(), tag)


def end_previous(
    start: BatchStart,
    work: WorkFolders,
    session: Session,
    timeout_s: float,
    now_s: Callable[[], float],
    wait: Callable[[float], None],
) -> None:
    """Wait until the server has finished the Spark job of a client that has died, or end it.

    Nothing is done for clients of other servers, or of one that was started again.

    Args:
        start: The start of this driver, which has claimed its fence.
        work: The folders of Spark jobs.
        session: The session of this start.
        timeout_s: How long to wait.
        now_s: The monotonic clock.
        wait: Sleeps for so many seconds, or raises if the job is to end.
    """
    if not isinstance(session, SessionHandle) or not session.is_connect or not start.previous:
        return
    application = session.application_id()
    clients = [client for client in start.previous if client.application == application]
    if not clients:
        return
    folder = work_folder(start.manifest.commit + 1)
    _LOGGER.info("waiting %g s for a Spark job of a client that has died", timeout_s)
    ends_s = now_s() + timeout_s
    while not all_have_finished(finished_partitions(work.names(folder))) and now_s() < ends_s:
        wait(_POLL_S)
    for client in clients:
        session.interrupt(client.session, client.tag)
