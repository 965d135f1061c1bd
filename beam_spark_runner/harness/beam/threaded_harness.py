"""Beam's SDK harness in threads of this process, for LOOPBACK."""

import contextlib
import contextvars
import functools
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from apache_beam.runners.worker.sdk_worker import SdkHarness
from apache_beam.utils.sentinel import Sentinel
from apache_beam.utils.thread_pool_executor import UnboundedThreadPoolExecutor

from beam_spark_runner.harness.beam.patches import patch_beam
from beam_spark_runner.harness.beam.plugin.answers import answer
from beam_spark_runner.harness.beam.profiling import Profiling

_LOGGER = logging.getLogger(__name__)


class _Threads(UnboundedThreadPoolExecutor):  # type: ignore[misc]
    """The threads of one harness. Its shutdown does not wait for running code of an ended job."""

    def shutdown(self, wait: bool = True) -> None:
        super().shutdown(wait=False)


class ThreadedHarness(SdkHarness):  # type: ignore[misc]
    """Beam's harness in threads of this process, which can be ended and marks its threads.

    Threads: any.
    """

    def __init__(
        self,
        control_url: str,
        worker_id: str,
        cache_bytes: int,
        running: contextvars.ContextVar[Any],
        name: object,
        profiling: Profiling,
    ) -> None:
        """Create the harness, not yet connected.

        Args:
            control_url: The URL of the runner's control service.
            worker_id: The id that the harness sends with every call.
            cache_bytes: The size of its state cache.
            running: Set to ``name`` in every thread while the harness's code runs there.
            name: The name of the harness. gRPC's threads may keep a reference to it for long.
            profiling: Makes profiles of bundles.
        """
        super().__init__(
            control_url,
            worker_id=worker_id,
            state_cache_size=cache_bytes,
            profiler_factory=profiling,
        )
        patch_beam()
        self._worker_thread_pool = _Threads()
        self._running = running
        self._name = name
        self._thread = threading.Thread(target=self._live, name="beam-loopback", daemon=True)

    def start(self) -> None:
        """Connect to the runner and process instructions, in a thread."""
        self._thread.start()

    def end(self) -> None:
        """Have the harness close its streams and tear its DoFns down; does not wait."""
        self._responses.put(Sentinel.sentinel)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end of the harness; return False on a timeout."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _live(self) -> None:
        with self._as_running():
            try:
                self.run()
            except grpc.RpcError as error:
                # Its Spark task reports what that means for the job.
                _LOGGER.debug("the Python worker of %s has gone: %s", self._name, error)
                error.__traceback__ = None  # it refers to this frame, and the error may be kept
                self._close_streams()
            finally:
                self._worker_thread_pool.shutdown()
                self._report_progress_executor.shutdown(wait=False)

    def _close_streams(self) -> None:
        """Close the streams as an orderly ``run`` does; else gRPC's threads keep the harness."""
        self._responses.put(Sentinel.sentinel)
        for close in (
            self._data_channel_factory.close,
            self._state_handler_factory.close,
            self._bundle_processor_cache.shutdown,
        ):
            try:
                close()
            except grpc.RpcError as error:  # the error of the stream again
                error.__traceback__ = None

    def _execute(self, task: Callable[[], Any], request: Any) -> None:
        with self._as_running():
            super()._execute(functools.partial(answer, task, request), request)

    @contextlib.contextmanager
    def _as_running(self) -> Iterator[None]:
        token = self._running.set(self._name)
        try:
            yield
        finally:
            self._running.reset(token)
