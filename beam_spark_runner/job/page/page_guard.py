"""Stands in front of all routes: host, token, cookie, and the headers of answers."""

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from beam_spark_runner.job.page.page_access import HEADERS, PageAccess

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_App = Callable[[_Message, _Receive, _Send], Awaitable[None]]
_OPEN = ("/login", "/static/")
"""Paths that need no token."""


class Guard:
    """An ASGI application around another one.

    It gives the routes ``viewer`` in the state of each request.

    Args:
        app: The routes.
        access: Who may see and act.
        is_secure: Whether the page is served over TLS.
    """

    def __init__(self, app: _App, access: PageAccess, *, is_secure: bool) -> None:
        self._app, self._access, self._is_secure = app, access, is_secure

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)

        async def send_with_headers(message: _Message) -> None:
            if message["type"] == "http.response.start":
                response_headers = MutableHeaders(scope=message)
                for name, value in HEADERS:
                    response_headers.setdefault(name, value)
            await send(message)

        answer = self._refusal(scope, headers)
        await (answer or self._app)(scope, receive, send_with_headers)

    def _refusal(self, scope: _Message, headers: Headers) -> Response | None:
        """Return the answer to a request that no route sees. None: there is none."""
        access, path = self._access, scope["path"]
        if not access.allows_host(headers.get("host", "")):
            return PlainTextResponse("This page is not known by this name.", 421)
        if scope["method"] not in ("GET", "HEAD") and not access.is_own_origin(
            headers.get("origin", ""), headers.get("host", "")
        ):
            return PlainTextResponse("This request comes from another web site.", 403)
        viewer = access.viewer(headers.get("cookie", ""), headers.get("authorization", ""))
        scope.setdefault("state", {})["viewer"] = viewer
        parameters = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if (token := dict(parameters).get("token")) is not None and access.needs_token:
            others = [pair for pair in parameters if pair[0] != "token"]
            place = _place(path, others)
            if access.is_token(token):
                return self.with_cookie(RedirectResponse(place, 303))
            return RedirectResponse("/login", 303)
        if viewer.may_see or path.startswith(_OPEN):
            return None
        if path.startswith("/api/"):
            answer: Response = JSONResponse(
                {"error": "this page needs the header 'authorization: Bearer TOKEN'"}, 401
            )
            answer.headers["www-authenticate"] = "Bearer"
            return answer
        return RedirectResponse(f"/login?{urlencode({'next': _place(path, parameters)})}", 303)

    def with_cookie(self, answer: Response) -> Response:
        """Give a browser a cookie, for it has shown the token, or none is needed."""
        _, value = self._access.new_cookie()
        return set_cookie(answer, self._access, value, is_secure=self._is_secure)


def _place(path: str, query: Sequence[tuple[str, str]]) -> str:
    """Return an address of this page: one slash, since two begin the name of a host."""
    return f"/{quote(path).lstrip('/')}" + (f"?{urlencode(query)}" if query else "")


def set_cookie(answer: Response, access: PageAccess, value: str, *, is_secure: bool) -> Response:
    """Add the cookie to an answer. It ends with the browser, or with this process.

    It is not ``strict``: a browser would not send it after a click in a notebook. No form of
    another web site is accepted, see ``PageAccess``.
    """
    answer.set_cookie(
        access.cookie_name, value, httponly=True, samesite="lax", secure=is_secure, path="/"
    )
    return answer
