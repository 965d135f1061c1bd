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

from beam_spark_runner.harness.beam.adapting import adapt_beam
from beam_spark_runner.harness.beam.plugin.answers import answer

_LOGGER = logging.getLogger(__name__)


class _Threads(UnboundedThreadPoolExecutor):  # type: ignore[misc]
    """Of one harness. Code that runs on in them is not waited for: its job has ended."""

    def shutdown(self, wait: bool = True) -> None:
        super().shutdown(wait=False)


class ThreadedHarness(SdkHarness):  # type: ignore[misc]
    """Beam's harness in threads of this process. It can be ended, and marks the threads it uses.

    Threads: any.
    """

    def __init__(
        self,
        control_url: str,
        worker_id: str,
        cache_bytes: int,
        running: contextvars.ContextVar[Any],
        name: object,
    ) -> None:
        """Begin with no connection.

        Args:
            control_url: of the runner that gives it work.
            worker_id: by which the runner knows it.
            cache_bytes: of state that it may keep.
            running: is set to ``name`` in every thread, while the harness's code runs there.
            name: of the harness. gRPC's threads may keep it for long.
        """
        super().__init__(control_url, worker_id=worker_id, state_cache_size=cache_bytes)
        adapt_beam()
        self._worker_thread_pool = _Threads()
        self._running = running
        self._name = name
        self._thread = threading.Thread(target=self._live, name="beam-loopback", daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def end(self) -> None:
        """Let it close its streams and tear its DoFns down; does not wait."""
        self._responses.put(Sentinel.sentinel)

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end; False: it takes longer."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _live(self) -> None:
        with self._as_running():
            try:
                self.run()
            except grpc.RpcError as error:
                # Its Spark task reports what that means for the job.
                _LOGGER.debug("the Python worker of %s has gone: %s", self._name, error)
                error.__traceback__ = None  # which has this frame: others may keep the error
                self._close_streams()
            finally:
                self._worker_thread_pool.shutdown()
                self._report_progress_executor.shutdown(wait=False)

    def _close_streams(self) -> None:
        """What ``run`` does at an orderly end: gRPC's threads would keep the harness else."""
        self._responses.put(Sentinel.sentinel)
        for close in (
            self._data_channel_factory.close,
            self._state_handler_factory.close,
            self._bundle_processor_cache.shutdown,
        ):
            try:
                close()
            except grpc.RpcError as error:  # that of the stream, once more
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
