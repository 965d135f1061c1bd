"""The Spark that the runner has started in this process: pipelines share it, and find it again.

It ends with the process, when another one is asked for, by ``stop``, and when it has been idle for
long.
"""

import atexit
import contextlib
import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from py4j.protocol import Py4JError

from beam_spark_runner.core.errors import SparkSetupError
from beam_spark_runner.spark import pyspark_internals
from beam_spark_runner.spark.session.chosen_master import default_master
from beam_spark_runner.spark.session.conf import SparkSettings, is_connect
from beam_spark_runner.spark.session.jvm_process import end_jvm
from beam_spark_runner.spark.session.launch import settings_of_start, without_token

_LOGGER = logging.getLogger(__name__)


class OwnSpark:
    """A Spark that the runner has started.

    Args:
        spark: Its session, with the settings that only a new Spark can have.
        master: ``--spark_master_url`` of the pipeline for which it was started.
        settings: What ``settings_of_start`` has returned for that pipeline.
        on_idle: Is called in a thread once no pipeline has used it for ``idle_s``.

    Threads: the caller holds one lock for all calls.
    """

    def __init__(
        self,
        spark: Any,
        master: str | None,
        settings: Mapping[str, str],
        on_idle: "Callable[[OwnSpark], None]",
    ) -> None:
        self.spark = spark
        self.users = 0
        self._master = master or default_master()
        self._settings = settings
        self._on_idle = on_idle
        self._timer: threading.Timer | None = None
        self._jobs: int | None = None  # how many it had run when its last pipeline ended

    def begin_use(self) -> None:
        """Begin the use by one pipeline."""
        self.users += 1
        self.stop_waiting()

    def end_use(self, idle_s: float) -> None:
        """End the use by one pipeline; after the last one, wait for another for ``idle_s``."""
        self.users -= 1
        if self.users or self.has_stopped():
            return
        self._jobs = self._jobs_so_far()
        self._timer = threading.Timer(idle_s, self._on_idle, (self,))
        self._timer.daemon = True
        self._timer.start()

    @property
    def is_local(self) -> bool:
        """Whether it runs in the JVM of this process alone."""
        return not is_connect(self.spark) and self._master.startswith("local")

    def has_stopped(self) -> bool:
        """Whether somebody has stopped its session in this process."""
        if is_connect(self.spark):
            return bool(self.spark.is_stopped)
        return pyspark_internals.is_stopped(self.spark.sparkContext)

    def has_died(self) -> str | None:
        """Return what has ended without being stopped here; None: nothing."""
        if is_connect(self.spark):
            return None
        try:
            has_ended = pyspark_internals.has_ended(self.spark.sparkContext)
        except (Py4JError, OSError):
            return "its JVM has ended"
        return "its Spark application has ended" if has_ended else None

    def differs_from(self, master: str | None, settings: Mapping[str, str]) -> str | None:
        """Return what a pipeline wants that only another Spark has; None: this one serves it.

        Args:
            master: ``--spark_master_url`` of the pipeline.
            settings: What ``settings_of_start`` returns for it.
        """
        wanted_master = master or default_master()
        if wanted_master != self._master:
            return (
                f"it runs on {without_token(self._master)}, not on {without_token(wanted_master)}"
            )
        names = {*settings.items()} ^ {*self._settings.items()}
        return f"another value of {min(names)[0]} is wanted" if names else None

    def is_used_otherwise(self) -> bool:
        """Whether the program has run its own Spark jobs in it since its last pipeline."""
        return self._jobs_so_far() != self._jobs

    def stop_waiting(self) -> None:
        """Wait no longer for the next pipeline."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def stop(self) -> None:
        """Stop it, and end its JVM. Its pipelines have ended."""
        self.stop_waiting()
        if is_connect(self.spark):
            with contextlib.suppress(Exception):  # the server may have gone
                self.spark.stop()
        # The context of spark-submit lives as long as the program: on YARN a second one cannot be
        # had.
        elif "PYSPARK_GATEWAY_PORT" not in os.environ:
            _stop(self.spark)
            end_jvm()

    def _jobs_so_far(self) -> int | None:
        if is_connect(self.spark) or self.has_stopped():
            return None
        return pyspark_internals.jobs_so_far(self.spark.sparkContext)


def _stop(spark: Any) -> None:
    """Stop a Spark. If its JVM has ended, there is nothing to stop or to report."""
    warnings.filterwarnings(
        "ignore", message="Unable to cleanly shutdown Spark JVM", category=RuntimeWarning
    )
    try:
        spark.stop()
    except Exception:
        if pyspark_internals.does_jvm_answer():
            raise
        _LOGGER.debug("Spark's JVM has ended before its session was stopped", exc_info=True)
        pyspark_internals.forget_context()


class Use:
    """The use of the runner's Spark by one pipeline."""

    def __init__(self, own: OwnSpark, config: SparkSettings) -> None:
        self._own, self._idle_s = own, config.session_idle_s
        own.begin_use()

    def release(self) -> None:
        """End the use."""
        with locked():
            self._own.end_use(self._idle_s)


_own: OwnSpark | None = None
_lock = threading.RLock()


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """Keep other threads from starting, taking or ending the runner's Spark, for the context."""
    with _lock:
        yield


def current() -> OwnSpark | None:
    """Return the runner's Spark, if there is one."""
    return _own


def set_current(spark: Any, config: SparkSettings) -> None:
    """Make a Spark that was started for a pipeline the runner's."""
    global _own
    _own = OwnSpark(spark, _wanted_master(config), _settings(spark, config), _end_idle)


def prepare_for(config: SparkSettings, *, is_given: bool) -> None:
    """End the runner's Spark if it is idle, and a pipeline needs another one.

    If the program runs its own jobs in it, or has stopped it, it is the program's from now on.

    Args:
        config: The options of the pipeline.
        is_given: Whether the pipeline is to run in a session that was passed to the runner.
    """
    if _own is not None and _own.has_stopped():
        _let_go()
    if _own is None or is_given or _own.users:
        return
    if died := _own.has_died():
        _LOGGER.warning("another Spark is started: %s", died)
        _end()
    elif _own.is_used_otherwise():
        _let_go()
    elif differs := _own.differs_from(_wanted_master(config), _settings(_own.spark, config)):
        _LOGGER.info("another Spark is started: %s", differs)
        _end()


def stop_session() -> bool:
    """Stop the Spark that the runner has started in this process, and end its JVM.

    Returns:
        Whether there was one.

    Raises:
        SparkSetupError: Pipelines run in it.
    """
    with locked():
        if _own is None:
            return False
        if _own.users:
            raise SparkSetupError(
                f"{_own.users} pipelines run in this process's Spark.",
                "Wait for them, or cancel them.",
            )
        _end()
        return True


def forget_ended(spark: Any) -> None:
    """Let the next pipeline start another application: that of the runner's Spark has ended.

    Pipelines that still use it may close their sessions later.

    Args:
        spark: The session for which it was started.
    """
    with locked():
        if _own is not None and _own.spark is spark:
            _let_go()
            spark.stop()  # for PySpark, which does not notice that it has ended


def _let_go() -> None:
    global _own
    if _own is not None:
        _own.stop_waiting()
        _own = None


def _end() -> None:
    global _own
    if _own is not None:
        ending, _own = _own, None
        ending.stop()


def _end_idle(own: OwnSpark) -> None:
    with locked():
        if own is not _own or own.users or own.has_stopped():
            return
        if not own.has_died() and own.is_used_otherwise():
            _LOGGER.info("the program has run its own Spark jobs: Spark is not stopped")
            _let_go()
            return
        _LOGGER.info("Spark is stopped: no pipeline has run for --spark_session_idle_timeout")
        _end()


def _wanted_master(config: SparkSettings) -> str | None:
    return config.spark_master_url or os.environ.get("SPARK_REMOTE")


def _settings(spark: Any, config: SparkSettings) -> dict[str, str]:
    """Return the settings that only a new Spark can have."""
    user_conf = dict(config.spark_conf)
    return user_conf if is_connect(spark) else settings_of_start(user_conf)


def _in_child() -> None:
    """Forget the runner's Spark in a forked process: it is the parent's."""
    global _own, _lock
    _own, _lock = None, threading.RLock()


os.register_at_fork(after_in_child=_in_child)


@atexit.register
def _at_exit() -> None:
    """End an application on a cluster properly. A local Spark ends with its JVM, by itself."""
    if _own is not None and not _own.is_local:
        _end()
