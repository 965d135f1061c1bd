"""An HTTP port that serves the metrics of jobs in Prometheus's text format."""

import logging
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, start_http_server

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.job.export.prometheus import JobMetrics, JobsCollector
from beam_spark_runner.options.metrics_address import MetricsAddress

_LOGGER = logging.getLogger(__name__)


class MetricsPort:
    """Serves metrics from its construction until ``close``, in its own threads.

    It is constructed after Spark has started, as every server of this package: Spark's JVM begins
    with a fork, which is unsafe while other threads run.

    Args:
        address: The host and port to listen at.
        jobs: Returns the jobs that run.

    Attributes:
        url: The URL of the metrics.

    Raises:
        OptionsError: The port is in use, or the host is not an address of this machine.
    """

    def __init__(self, address: MetricsAddress, jobs: Callable[[], Iterable[JobMetrics]]) -> None:
        registry = CollectorRegistry()
        registry.register(JobsCollector(jobs))
        try:
            self._server, self._thread = start_http_server(address.port, address.host, registry)
        except OSError as error:
            raise OptionsError(
                "metrics_port",
                f"cannot listen at {address.host}:{address.port}: {error}; name another port, "
                "or 0 for any that is free",
            ) from error
        host = f"[{address.host}]" if ":" in address.host else address.host
        self.url = f"http://{host}:{self._server.server_port}/metrics"
        _LOGGER.info("metrics at %s", self.url)

    def close(self) -> None:
        """Stop serving, and wait for the server's thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
