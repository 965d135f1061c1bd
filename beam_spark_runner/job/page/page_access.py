"""Who may see the page, and who may act: token, cookie, and protection against other web sites.

A browser shows the token once, in the form or in the address that the program has logged, and gets
a cookie that this process has signed. Programs show the token with each request. Where the job
server demands no token, the page demands none either; the cookie then only ties a form to the
browser that has got it.
"""

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.requests import cookie_parser

from beam_spark_runner.options.server_access import is_loopback

_NONCE_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """Who sends a request.

    Attributes:
        nonce: The number of the browser, from its cookie. "": it has none yet, or it is a program.
        may_see: Whether it has shown the token, or none is needed.
        is_program: Whether it has sent the token in a header, which no web site can have it do.
    """

    nonce: str
    may_see: bool
    is_program: bool = False


class PageAccess:
    """Checks requests. Threads: any.

    Args:
        token: The token that viewers must show. None: none.
        host: The address at which the page listens.
        port: Its port.
        is_read_only: Whether nobody may act.
    """

    def __init__(self, token: str | None, host: str, port: int, *, is_read_only: bool) -> None:
        self._token = token
        self._host = host
        self._key = secrets.token_bytes(32)  # cookies end with this process
        # Browsers send cookies to all ports of a host.
        self.cookie_name = f"beam_job_page_{port}"
        self.is_read_only = is_read_only

    @property
    def needs_token(self) -> bool:
        """Whether viewers must show a token."""
        return self._token is not None

    def allows_host(self, header: str) -> bool:
        """Whether the page is known by the name in the header Host.

        Another name for the loopback address belongs to a web site that wants to read the page in
        its visitor's browser (DNS rebinding).
        """
        if not is_loopback(self._host):
            return True  # names of this machine are not known; TLS and the token protect it
        try:
            name = urlsplit(f"//{header}").hostname or ""
        except ValueError:
            return False
        return is_loopback(name)

    def viewer(self, cookie: str, authorization: str) -> Viewer:
        """Return who sends a request with these headers; "": it has none."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() == "bearer":
            may_see = not self.needs_token or self.is_token(token)
            return Viewer(nonce="", may_see=may_see, is_program=self.needs_token)
        nonce = self._nonce_in(cookie)
        return Viewer(nonce=nonce, may_see=bool(nonce) or not self.needs_token)

    def is_token(self, text: str) -> bool:
        """Whether a text is the token."""
        if self._token is None:
            return False
        return hmac.compare_digest(text.encode(), self._token.encode())

    def new_cookie(self) -> tuple[str, str]:
        """Return the number of a new browser, and the value of its cookie."""
        nonce = secrets.token_hex(_NONCE_BYTES)
        return nonce, f"{nonce}.{self._signature('cookie', nonce)}"

    def form_token(self, nonce: str) -> str:
        """Return what a form must contain that this browser sends."""
        return self._signature("form", nonce)

    def accepts_form(self, viewer: Viewer, token: str) -> bool:
        """Whether a form comes from the browser that has got it."""
        expected = self.form_token(viewer.nonce)
        return bool(viewer.nonce) and hmac.compare_digest(token.encode(), expected.encode())

    def is_own_origin(self, origin: str, host: str) -> bool:
        """Whether a request comes from the page itself. "": the browser does not say it."""
        try:
            return not origin or urlsplit(origin).netloc == host
        except ValueError:
            return False

    def _nonce_in(self, header: str) -> str:
        # Browsers send the cookies of all ports of a host, which need not be well-formed.
        nonce, _, signature = cookie_parser(header).get(self.cookie_name, "").partition(".")
        expected = self._signature("cookie", nonce)
        is_signed = hmac.compare_digest(signature.encode(), expected.encode())
        return nonce if nonce and is_signed else ""

    def _signature(self, use: str, nonce: str) -> str:
        return hmac.new(self._key, f"{use} {nonce}".encode(), hashlib.sha256).hexdigest()


HEADERS: Sequence[tuple[str, str]] = (
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    ("x-frame-options", "DENY"),
    ("x-content-type-options", "nosniff"),
    # Not less: browsers would send forms without their origin.
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
    ("cache-control", "no-store"),
)
"""Headers of each answer."""
