"""A Spark session that one pipeline runs on."""

import contextlib
import logging
import re
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, Protocol

from pyspark.errors import PySparkException

from beam_spark_runner.engine.limits import ROW_LIMIT_BYTES
from beam_spark_runner.engine.shared_file import SharedFile
from beam_spark_runner.observing.troubles import LostExecutor
from beam_spark_runner.spark import pyspark_internals
from beam_spark_runner.spark.broadcast import broadcast_file
from beam_spark_runner.spark.sent_files import BroadcastFile, SessionFile
from beam_spark_runner.spark.session.conf import WORKER_PYTHON, get_conf, is_connect, set_conf
from beam_spark_runner.spark.session.lost_executors import LostExecutors
from beam_spark_runner.spark.versions import SparkVersion

_LOGGER = logging.getLogger(__name__)
_SHUFFLE_PARTITIONS_OF_SPARK = "200"
_ROW_LIMIT_BYTES_SPARK_3 = 1 << 14
_LOOPBACK = "127.0.0.1"
_POOL = "spark.scheduler.pool"
_IS_ABOUT_WRITES = re.compile(
    r"spark\.(sql\.(catalog|sources|parquet|orc|avro|csv|json|xml|hive|iceberg|storeAssignmentPolicy"
    r"|session\.timeZone|files\.maxRecordsPerFile|ansi|timeType)|databricks)\b"
)


def _folder_of(archive: Path) -> str:
    return archive.name.partition(".")[0]


class Owner(Protocol):
    """A Spark that the runner has started, which several pipelines may use."""

    def release(self) -> None:
        """End the use by one pipeline; the last one stops Spark."""
        ...


def release_connect_session(spark: Any) -> None:
    """Release a session of the runner on a Spark Connect server, with all files sent to it."""
    # Not stop(): in a local Connect setup that ends the user's server too.
    release = getattr(spark.client, "release_session", None)
    with contextlib.suppress(Exception):  # the server forgets idle sessions anyway
        if release is not None:
            release()
        spark.client.close()


class _Scope(threading.local):
    """What the Spark jobs of a thread are tagged and described with: each change asks the JVM."""

    tag: str | None = None
    description: str | None = None


class SessionHandle:
    """A session to run one pipeline in. Made by ``open_session``.

    Attributes:
        spark: the session: isolated from the user's; or the user's own, if no other can be had.
        program: the session of the program; ``spark``, if there is no other one.
        catalog: the session that knows the user's tables and temporary views: ``program``; on Spark
            Connect ``spark``, which does where it could be cloned.
        is_connect: whether it is a Spark Connect client: no ``sparkContext``, no JVM.
        version: that of the Spark that runs the jobs.
        master: Spark's master, such as ``local[2]``; empty where it is unknown.
        is_owned: whether the runner has started its Spark, which the last ``close`` stops.
        pool: Spark's scheduler pool for the jobs of this session (classic only). None: the
            default one, or what the calling thread has set.
        on_close: is called by ``close``, also if that fails to restore settings.

    Threads:
        ``cancel`` may be called by any thread, everything else by the one that
        opened the session, or by one at a time.
    """

    def __init__(
        self,
        spark: Any,
        *,
        owner: Owner | None,
        users_values: dict[str, str | None] | None,
        program: Any = None,
        own_settings: Collection[str] = (),
    ) -> None:
        self.spark = spark
        self._own_settings = set(own_settings)  # names of the settings of this pipeline
        self.program = spark if program is None else program
        self.is_connect = is_connect(spark)
        self.catalog = spark if self.is_connect else self.program
        self.pool: str | None = None
        self.on_close: Callable[[], object] = lambda: None
        self.version = SparkVersion.parse(spark.version)
        self.master = get_conf(spark, "spark.master") or ""
        self.is_owned = owner is not None
        self._owner = owner
        self._lost_executors = LostExecutors(None if self.is_connect else spark.sparkContext)
        self._users_values = (
            users_values  # values to restore; None: the session is not the user's own
        )
        self._broadcasts: list[Any] = []
        self._is_closed = False
        self._scope = _Scope()

    @property
    def is_local(self) -> bool:
        """Whether tasks run on this machine, in the JVM of the driver."""
        return not self.is_connect and re.match(r"local(\[|$)", self.master) is not None

    @property
    def row_limit_bytes(self) -> int:
        """See ``Session``."""
        # Spark 3 counts the rows of an Arrow batch (see ``session.conf``), and not their bytes.
        return ROW_LIMIT_BYTES if self.version.limits_batches_by_bytes else _ROW_LIMIT_BYTES_SPARK_3

    @property
    def max_task_attempts(self) -> int:
        """How often Spark runs a task before it fails the job. 1: a failed task is final."""
        in_one_jvm = re.fullmatch(r"local(?:\[[^,\]]+(?:,\s*(\d+))?\])?", self.master)
        if in_one_jvm:  # there Spark ignores spark.task.maxFailures
            return int(in_one_jvm[1] or 1)
        return int(get_conf(self.spark, "spark.task.maxFailures") or 4)

    def driver_host(self) -> tuple[str, str] | None:
        """Return the address on which to listen for executors, and the host to which they connect.

        None: unknown, as on Spark Connect, where the driver is another process.
        """
        if self.is_local:
            return _LOOPBACK, _LOOPBACK
        host = get_conf(self.spark, "spark.driver.host")
        if self.is_connect or not host:
            return None
        return get_conf(self.spark, "spark.driver.bindAddress") or host, host

    def local_folder(self) -> str | None:
        """Return a folder that Spark deletes when it stops, even if this process is killed.

        None: there is none, or tasks run on other machines.
        """
        if not self.is_local:
            return None
        return pyspark_internals.temporary_folder(self.spark.sparkContext)

    def application_id(self) -> str:
        """Return the id of the Spark application; on Connect, if unknown, that of the session."""
        if not self.is_connect:
            return str(self.spark.sparkContext.applicationId)
        with contextlib.suppress(Exception):
            return str(self.spark.conf.get("spark.app.id"))
        return str(self.spark.session_id)

    def ui_url(self) -> str | None:
        """Return the URL of the Spark UI. None: it has none; on Connect, it is not known."""
        return None if self.is_connect else self.spark.sparkContext.uiWebUrl

    def has_ended(self) -> bool:
        """Whether the Spark application has ended, so that nothing can run in it any more.

        Raises:
            Py4JError: the JVM does not answer.
        """
        if self.is_connect:
            return bool(self.spark.is_stopped)
        return pyspark_internals.has_ended(self.spark.sparkContext)

    def slots(self) -> int:
        """Return how many tasks run at a time: the cores of the executors that are up now.

        Call it late: a cluster's executors take seconds to register.
        """
        if not self.is_connect:
            return max(1, int(self.spark.sparkContext.defaultParallelism))
        # Connect has no call for it; but an unsplit range gets one partition per core, and
        # planning it runs no job.
        plan = pyspark_internals.plan_text(self.spark.range(1))
        match = re.search(r"splits=(\d+)", plan)
        return max(1, int(match[1])) if match else 1

    def can_grow(self) -> bool:
        """Whether Spark starts more executors when tasks wait."""
        return get_conf(self.spark, "spark.dynamicAllocation.enabled", "false") == "true"

    def lost_executors(self) -> tuple[LostExecutor, ...]:
        """Return the executors that Spark has lost; on Connect, none: they are not known."""
        return self._lost_executors.look()

    def shuffle_partitions(self) -> int | None:
        """Return the user's number of partitions for a shuffle; None if it is Spark's default."""
        value = get_conf(self.spark, "spark.sql.shuffle.partitions") or ""
        # Some vendors have it choose by itself, and say "auto".
        return int(value) if value.isdigit() and value != _SHUFFLE_PARTITIONS_OF_SPARK else None

    @contextlib.contextmanager
    def job_scope(self, tag: str, description: str) -> Iterator[None]:
        """Tag the Spark jobs that the calling thread starts, so that ``cancel`` finds them.

        Within a scope with the same tag, only the description changes.

        Args:
            tag: the tag of the Spark jobs, without commas.
            description: shown with the jobs in the Spark UI (classic only).
        """
        scope = self._scope
        with self._tagged(tag) if scope.tag != tag else contextlib.nullcontext():
            if self.is_connect:
                yield
                return
            context = self.spark.sparkContext
            outer, scope.description = scope.description, description
            context.setJobDescription(description)
            with self._at_end(lambda: context.setJobDescription(outer)):
                try:
                    yield
                finally:
                    scope.description = outer

    @contextlib.contextmanager
    def _tagged(self, tag: str) -> Iterator[None]:
        """Tag the Spark jobs of the calling thread, and put them into the pool."""
        scope = self._scope
        with contextlib.ExitStack() as restoring:
            if self.is_connect:
                self.spark.addTag(tag)
                restoring.enter_context(self._at_end(lambda: self.spark.removeTag(tag)))
            else:
                context, pool = self.spark.sparkContext, self.pool
                scope.description = context.getLocalProperty("spark.job.description")
                context.addJobTag(tag)
                restoring.enter_context(self._at_end(lambda: context.removeJobTag(tag)))
                if pool is not None:
                    previous_pool = context.getLocalProperty(_POOL)
                    context.setLocalProperty(_POOL, pool)
                    restoring.enter_context(
                        self._at_end(lambda: context.setLocalProperty(_POOL, previous_pool))
                    )
            outer, scope.tag = scope.tag, tag
            try:
                yield
            finally:
                scope.tag = outer

    @contextlib.contextmanager
    def _at_end(self, restore: Callable[[], object]) -> Iterator[None]:
        """Restore something of the calling thread, unless Spark was stopped.

        The user may stop Spark while a pipeline runs in it. An error of the block is raised, also
        if nothing can be restored: the error may be that Spark has ended.
        """
        try:
            yield
        except BaseException:
            with contextlib.suppress(Exception):
                if not self._is_stopped():
                    restore()
            raise
        if not self._is_stopped():
            restore()

    def _is_stopped(self) -> bool:
        return not self.is_connect and pyspark_internals.is_stopped(self.spark.sparkContext)

    def share(self, path: Path) -> SharedFile:
        """Send a copy of a file to all executors, for use until ``close``."""
        if not self.is_connect:
            broadcast = broadcast_file(self.spark.sparkContext, path)
            self._broadcasts.append(broadcast)
            return BroadcastFile(broadcast)
        # The artifact belongs to this session, and is deleted with it.
        self.spark.addArtifacts(str(path), file=True)
        return SessionFile(path.name)

    def add_archive(self, path: Path) -> None:
        """Give an archive to all executors, also to those that join later.

        Once for an application; on Spark Connect, where archives belong to a session,
        ``use_archive`` does it.
        """
        if not self.is_connect:
            self.spark.sparkContext.addArchive(f"{path}#{_folder_of(path)}")

    def worker_python(self) -> str | None:
        """Return the interpreter of this session's workers. None: on Connect, it is not known."""
        of_session = get_conf(self.spark, WORKER_PYTHON)
        if of_session or self.is_connect:
            return of_session
        return str(self.spark.sparkContext.pythonExec)

    def use_archive(self, path: Path) -> None:
        """Let this session's Python workers run ``bin/python`` of an archive that was added."""
        python = f"./{_folder_of(path)}/bin/python"
        if get_conf(self.spark, WORKER_PYTHON) == python:
            return  # a clone of a session that has it
        if self.is_connect:
            self.spark.addArtifacts(f"{path}#{_folder_of(path)}", archive=True)
        self.set_conf(WORKER_PYTHON, python)

    def set_conf(self, key: str, value: str) -> None:
        """Set a property that this pipeline needs, whatever the user's value, until ``close``."""
        self._own_settings.add(key)
        if self._users_values is None:
            self.spark.conf.set(key, value)
        else:
            set_conf(self.spark, key, value, self._users_values)

    def program_catalogs(self) -> contextlib.AbstractContextManager[None]:
        """Let this thread find tables in the catalogs that the program has set up."""
        if self.is_connect:
            return contextlib.nullcontext()
        return pyspark_internals.active(self.catalog)

    def write_as_program(self) -> None:
        """Let ``spark`` write tables as ``catalog`` would: in its catalogs, and by its settings.

        Settings that were given for the pipeline itself have precedence.
        """
        if self.catalog is self.spark:
            return
        for key, _ in self.catalog.sql("SET").collect():  # which hides passwords
            if _IS_ABOUT_WRITES.match(key) and key not in self._own_settings:
                value = get_conf(self.catalog, key)
                if value is not None and get_conf(self.spark, key) != value:
                    self.set_conf(key, value)
        self.spark.catalog.setCurrentCatalog(self.catalog.catalog.currentCatalog())
        self.spark.catalog.setCurrentDatabase(self.catalog.catalog.currentDatabase())

    def cancel(self, tag: str) -> None:
        """Stop the jobs that run under ``tag`` now. A job that starts later is not affected.

        So the caller first makes sure that its own thread starts no more, and calls
        again as long as that thread has not ended.
        """
        if self.is_connect:
            self.spark.interruptTag(tag)
        elif not pyspark_internals.is_stopped(self.spark.sparkContext):
            self.spark.sparkContext.cancelJobsWithTag(tag)

    def session_id(self) -> str:
        """Return the id of the session on its Spark Connect server."""
        return str(self.spark.session_id)

    def interrupt(self, session_id: str, tag: str | None = None) -> None:
        """Stop the jobs in another session of this user, on the same Spark Connect server.

        Nothing happens if the server does not know that session, or if it is this one.

        Args:
            session_id: The id of the session.
            tag: Only the jobs under this tag. None: all.
        """
        if not self.is_connect or session_id == self.spark.session_id:
            return
        try:
            pyspark_internals.interrupt_in(self.spark, session_id, tag)
        except PySparkException as error:
            _LOGGER.info("nothing was interrupted in session %s: %s", session_id, error)

    def close(self) -> None:
        """Stop a Spark that the runner started; restore the settings of the user's session."""
        if self._is_closed:
            return
        self._is_closed = True
        for broadcast in self._broadcasts:
            with contextlib.suppress(Exception):  # the user may have stopped Spark
                broadcast.destroy()
        try:
            for key, value in (self._users_values or {}).items():
                if value is None:
                    self.spark.conf.unset(key)
                else:
                    self.spark.conf.set(key, value)
        finally:
            self.on_close()
            if self.is_connect and self.program is not self.spark:
                release_connect_session(self.spark)
            if self._owner is not None:
                self._owner.release()

    def __enter__(self) -> "SessionHandle":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
