"""The cluster that runs the tasks of a job: Spark."""

from collections.abc import Callable

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.driving.cluster import Cluster
from beam_spark_runner.job.prepare import PreparedJob
from beam_spark_runner.job.storage import JobStorage
from beam_spark_runner.job.telemetry import TaskTelemetry
from beam_spark_runner.spark.driver.cluster import SparkCluster, SparkClusterSettings
from beam_spark_runner.spark.driver.materialise import CheckpointOnExecutors, FilesInSharedStorage
from beam_spark_runner.spark.driver.tables import OpenTables
from beam_spark_runner.spark.session.handle import SessionHandle


def cluster_of(
    prepared: PreparedJob,
    session: SessionHandle,
    storage: JobStorage,
    telemetry: TaskTelemetry,
    tables: OpenTables,
    check_cancelled: Callable[[], None],
    *,
    plays_test_stream: bool,
) -> Cluster:
    """Return the cluster of a job.

    Args:
        prepared: The job.
        session: The session in which it runs.
        storage: Its storage, which is open.
        telemetry: Takes the offers of its tasks.
        tables: That it reads and writes.
        check_cancelled: Raises if the job is to end.
        plays_test_stream: Whether a TestStream drives the pipeline.

    Raises:
        OptionsError: This Spark cannot store rows without shared storage.
    """
    if session.version < (4, 0) and session.is_connect and storage.rows is None:
        raise OptionsError(
            "temp_location",
            f"Spark {'.'.join(map(str, session.version))} cannot store rows on executors for "
            "Spark Connect clients; name storage that this machine and all executors share",
        )
    config, job_id = prepared.config, prepared.job_id
    return SparkCluster(
        SparkClusterSettings(
            spark=session.spark,
            is_connect=session.is_connect,
            job_id=job_id,
            job_name=config.job_name,
            materialiser=CheckpointOnExecutors()
            if storage.rows is None
            else FilesInSharedStorage(session, storage.rows),
            folder=storage.files,
            share=session.share,
            scope=lambda title: session.job_scope(job_id, title),
            check_cancelled=check_cancelled,
            cancel=lambda: session.cancel(job_id),
            offers=telemetry.offers,
            tables=tables,
            anchors=not (session.is_local or session.is_connect) and session.version >= (4, 1),
            in_one_task=session.is_local
            and session.max_task_attempts == 1
            and plays_test_stream
            and not config.parallel_test_streams,
        )
    )
