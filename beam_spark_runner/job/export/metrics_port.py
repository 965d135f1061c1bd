"""An HTTP port that serves the metrics of jobs in Prometheus's text format, and probes."""

import logging
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from typing_extensions import override

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.job.export.health import Health
from beam_spark_runner.job.export.prometheus import JobMetrics, JobsCollector
from beam_spark_runner.options.metrics_address import MetricsAddress

_LOGGER = logging.getLogger(__name__)
_SILENT_FOR_S = 30.0


class MetricsPort:
    """Serves metrics from its construction until ``close``, in its own threads.

    ``/healthz`` and ``/readyz`` answer 200, or 503 with the reason as text; all other paths have
    the metrics.

    Args:
        address: The host and port to listen at.
        jobs: Returns the jobs that run.
        health: What the probes say. None: always that the server lives and is ready.
        queue: See ``JobsCollector``.

    Attributes:
        url: The URL of the metrics.

    Raises:
        OptionsError: The port is in use, or the host is not an address of this machine.
    """

    def __init__(
        self,
        address: MetricsAddress,
        jobs: Callable[[], Iterable[JobMetrics]],
        health: Health | None = None,
        queue: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        registry = CollectorRegistry()
        registry.register(JobsCollector(jobs, queue))
        server = _Server6 if ":" in address.host else _Server
        application = _with_probes(make_wsgi_app(registry), health or Health())
        try:
            self._server = make_server(address.host, address.port, application, server, _Handler)
        except OSError as error:
            raise OptionsError(
                "metrics_port",
                f"cannot listen at {address.host}:{address.port}: {error}; name another port, "
                "or 0 for any that is free",
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="beam-metrics", daemon=True
        )
        self._thread.start()
        host = f"[{address.host}]" if ":" in address.host else address.host
        self.url = f"http://{host}:{self._server.server_port}/metrics"
        _LOGGER.info("metrics at %s", self.url)

    def close(self) -> None:
        """Stop serving, and wait for the server's thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _with_probes(metrics: Callable[..., Any], health: Health) -> Callable[..., Any]:
    """Return a WSGI application that answers probes, too."""
    probes = {"/healthz": lambda: health.why_not_alive, "/readyz": lambda: health.why_not_ready}

    def application(environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Any:
        probe = probes.get(environ["PATH_INFO"])
        if probe is None:
            return metrics(environ, start_response)
        why = probe()
        status = "503 Service Unavailable" if why else "200 OK"
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{why or 'ok'}\n".encode()]

    return application


class _Server(ThreadingMixIn, WSGIServer):
    """Answers each request in a thread, so that a slow client delays no probe."""

    daemon_threads = True


class _Server6(_Server):
    """The same at an address of IPv6."""

    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    """Logs no requests, and drops clients that send nothing."""

    timeout = _SILENT_FOR_S

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Do nothing."""
