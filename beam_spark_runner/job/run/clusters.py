"""What runs the tasks of a job: Spark, or this process. The one place that knows both."""

import logging
from collections.abc import Callable

from beam_spark_runner.core.errors import OptionsError, PipelineRefusedError, TableError
from beam_spark_runner.core.table_steps import READ_TABLE, WRITE_TABLE
from beam_spark_runner.driving.cluster import Cluster
from beam_spark_runner.driving.session import Session
from beam_spark_runner.driving.tables import NoTables, Tables
from beam_spark_runner.engine.program import ShardLocations
from beam_spark_runner.engine.rows.row_memory import ROW_SHARES, BlockFile, RowMemory
from beam_spark_runner.engine.shared_file import share_file
from beam_spark_runner.graph.resources import merged
from beam_spark_runner.harness.values.spilled_group import MEMORY_LIMIT_BYTES
from beam_spark_runner.in_process.cluster import InProcessCluster
from beam_spark_runner.job.files.job_storage import JobStorage
from beam_spark_runner.job.files.shard_places import checkpoints_in
from beam_spark_runner.job.prepare.prepare import PreparedJob
from beam_spark_runner.job.run.recovery import JobRecovery
from beam_spark_runner.job.run.telemetry import TaskTelemetry
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.options.values import IN_PROCESS
from beam_spark_runner.plan.model import Plan
from beam_spark_runner.recovery.driver_start import Checkpoints
from beam_spark_runner.spark.driver.cluster import SparkCluster, SparkClusterSettings
from beam_spark_runner.spark.driver.materialise import CheckpointOnExecutors, FilesInSharedStorage
from beam_spark_runner.spark.driver.tables import open_tables
from beam_spark_runner.spark.session.handle import SessionHandle
from beam_spark_runner.spark.session.preflight import check_executors
from beam_spark_runner.spark.session.resource_profiles import ResourceProfiles
from beam_spark_runner.spark.session.store_preflight import check_executors_reach

_LOGGER = logging.getLogger(__name__)


def cluster_of(
    prepared: PreparedJob,
    session: Session,
    storage: JobStorage,
    telemetry: TaskTelemetry,
    tables: Tables,
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
    if not isinstance(session, SessionHandle):
        folder = storage.mounted
        assert folder is not None  # tasks run on this machine
        _warn_of_hints(prepared.plan)
        memory_bytes = prepared.config.group_memory_bytes or MEMORY_LIMIT_BYTES
        memory = RowMemory(memory_bytes // ROW_SHARES, lambda: BlockFile(folder))
        return InProcessCluster(
            prepared.job_id,
            lambda path: share_file(path, storage.files, session.share),
            memory,
            check_cancelled,
        )
    if session.is_connect and not session.version.stores_rows_for_connect and storage.rows is None:
        raise OptionsError(
            "temp_location",
            f"Spark {session.version} cannot store rows on executors for "
            "Spark Connect clients; name storage that this machine and all executors share",
        )
    config, job_id = prepared.config, prepared.job_id
    may_keep_tasks = session.is_local and session.max_task_attempts == 1
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
            is_anchored=not (session.is_local or session.is_connect)
            and session.version.unites_in_place,
            in_one_task=may_keep_tasks and plays_test_stream and not config.parallel_test_streams,
            # Broadcasts, which take the place of files, reach only a task that starts with them.
            keeps_first_task=may_keep_tasks
            and storage.files is not None
            and len(prepared.plan.segments) > 1,
            profile_for=ResourceProfiles(session).profile_for,
        )
    )


def _warn_of_hints(plan: Plan) -> None:
    hinted = merged(transform.resources for transform in plan.graph.transforms.values())
    if hinted.steps:
        steps = ", ".join(hinted.steps)
        _LOGGER.warning("a resource hint of %s has no effect: tasks run in the program", steps)


def tables_of(plan: Plan, session: Session, recovery: JobRecovery | None) -> Tables:
    """Open the Spark tables of a plan, see ``open_tables``.

    Args:
        plan: The plan of the job.
        session: The session in which it will run.
        recovery: Of a job that a later start can continue. None: it cannot.

    Raises:
        PipelineRefusedError: A table cannot be read or written, or there is no Spark.
    """
    if recovery is not None and recovery.done_metrics is not None:
        return NoTables()  # nothing runs; targets that the job has made would be refused
    if isinstance(session, SessionHandle):
        return open_tables(plan, session, () if recovery is None else recovery.begun_writes(plan))
    if problems := [
        TableError(
            f"it uses a Spark table, and --spark_master_url={IN_PROCESS} runs the pipeline without "
            "Spark; name a master, such as local[2]",
            step.name,
        )
        for step in plan.graph.transforms.values()
        if step.urn in (READ_TABLE, WRITE_TABLE)
    ]:
        raise PipelineRefusedError(problems)
    return NoTables()


def check_executors_of(session: Session, config: RunnerConfig) -> None:
    """Check the executors of a Spark, see ``check_executors``."""
    if isinstance(session, SessionHandle):
        check_executors(session, config.shared_storage, config.executor_environment)


def commits_in(
    session: Session, job_id: str, places: ShardLocations, config: RunnerConfig
) -> Checkpoints:
    """Return where a streaming job commits its epochs; all executors reach its state store.

    See ``checkpoints_in`` and ``check_executors_reach`` for the errors.
    """
    checkpoints = checkpoints_in(places, config)
    if isinstance(session, SessionHandle) and places.state_store is not None:
        with session.job_scope(job_id, "Verify executors"):
            check_executors_reach(session, places.state_store)
    return checkpoints
