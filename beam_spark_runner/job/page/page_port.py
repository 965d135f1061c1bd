"""The port at which the page is served, in a thread of the program."""

import logging
import socket
import ssl
import threading

import uvicorn

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.job.page.observed_jobs import ObservedJobs
from beam_spark_runner.job.page.page_access import PageAccess
from beam_spark_runner.job.page.page_app import PageApp
from beam_spark_runner.job.page.page_protocol import PageProtocol
from beam_spark_runner.job.page.shown_job import ShownJobs
from beam_spark_runner.options.page_address import PageAddress
from beam_spark_runner.options.server_access import ServerAccess

_BACKLOG = 128
_ENDS_WITHIN_S = 5.0


class PagePort:
    """Serves the page from its construction until ``close``.

    It is constructed after Spark has started, as every server of this package.

    Args:
        address: Where it listens.
        jobs: The jobs that it shows.
        title: The name of what has the jobs.
        token: The token that viewers must show. None: none.
        access: The certificate and the CAs of clients, as of the job server. Its token is ignored.

    Attributes:
        url: The URL of the page, without the token.

    Raises:
        OptionsError: The port is in use, or the host is not an address of this machine.
    """

    def __init__(
        self,
        address: PageAddress,
        jobs: ShownJobs,
        title: str,
        token: str | None,
        access: ServerAccess | None = None,
    ) -> None:
        access = access or ServerAccess()
        self._socket = _listening(address)
        port = self._socket.getsockname()[1]
        host = f"[{address.host}]" if ":" in address.host else address.host
        is_secure = access.cert is not None
        self.url = f"{'https' if is_secure else 'http'}://{host}:{port}/"
        self._observed = ObservedJobs(jobs)
        page_access = PageAccess(token, address.host, port, is_read_only=address.is_read_only)
        app = PageApp(self._observed, page_access, title, is_secure=is_secure)
        self._server = uvicorn.Server(
            uvicorn.Config(
                app.asgi,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                lifespan="off",
                ws="none",
                http=PageProtocol,
                loop="asyncio",
                timeout_keep_alive=10,
                timeout_graceful_shutdown=1,
                ssl_certfile=access.cert,
                ssl_keyfile=access.key,
                ssl_ca_certs=access.ca,
                ssl_cert_reqs=ssl.CERT_NONE if access.ca is None else ssl.CERT_REQUIRED,
            )
        )
        # Its level is that of the root logger otherwise, which shows when it starts and ends.
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        self._thread = threading.Thread(target=self._run, name="beam-page", daemon=True)
        self._observed.start()
        self._thread.start()

    def look_at(self, job_id: str) -> None:
        """Gather the facts of a job that has just been added: a quick one may be over soon."""
        self._observed.facts_of(job_id)

    def close(self) -> None:
        """Stop serving, and wait for the server's threads."""
        self._server.should_exit = True
        self._thread.join(_ENDS_WITHIN_S)
        self._observed.stop()
        self._socket.close()

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])


def _listening(address: PageAddress) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise OptionsError(
            "job_page_port",
            f"cannot listen at {address.host}:{address.port}: {error}; name another port, or 0 for "
            "any that is free",
        ) from error
