"""Kerberos over HTTP (SPNEGO), with libraries that are an extra of this package."""

from typing import Any
from urllib.parse import urlsplit

import gssapi
from requests import PreparedRequest, Response
from requests_gssapi import REQUIRED, HTTPSPNEGOAuth
from requests_gssapi.exceptions import MutualAuthenticationError, SPNEGOExchangeError

from beam_spark_runner.storage.webhdfs_http import HdfsError, SilentError


class Ticket(HTTPSPNEGOAuth):  # type: ignore[misc]
    """Authenticates one request to HDFS, and the server that answers it.

    The ticket is that of the environment: one that ``kinit`` has stored, or one that MIT Kerberos
    requests with the keytab in ``KRB5_CLIENT_KTNAME``.
    """

    def __init__(self) -> None:
        super().__init__(
            mutual_authentication=REQUIRED,
            # It need not be refused first.
            opportunistic_auth=True,
            # Refusals of HDFS have a text.
            sanitize_mutual_error_response=False,
        )

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        """Add a ticket to a request.

        Raises:
            HdfsError: There is no valid ticket.
        """
        try:
            self.creds = gssapi.Credentials(usage="initiate")
            # Reading it raises an error if the ticket has expired.
            _ = self.creds.lifetime
        except gssapi.exceptions.GSSError as error:
            raise HdfsError(
                "there is no valid Kerberos ticket: run kinit, or set KRB5_CLIENT_KTNAME to a "
                f"keytab, on each host that runs tasks, too ({error})"
            ) from error
        authenticated: PreparedRequest = super().__call__(request)
        return authenticated

    def generate_request_header(self, *args: Any, **kwargs: Any) -> str:
        """See the base class, which would send the request without a ticket after an error.

        Raises:
            HdfsError: Kerberos has no ticket for the server.
        """
        try:
            header: str = super().generate_request_header(*args, **kwargs)
        except SPNEGOExchangeError as error:
            raise HdfsError(f"Kerberos has no ticket for the server: {error}") from error
        return header

    def handle_other(self, response: Response) -> Response:
        """See the base class.

        Raises:
            SilentError: The server has not authenticated itself.
        """
        try:
            handled: Response = super().handle_other(response)
        except MutualAuthenticationError as error:
            server = urlsplit(str(response.url)).netloc
            raise SilentError(f"{server} did not prove by Kerberos who it is") from error
        return handled
