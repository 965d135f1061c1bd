"""The routes of the page."""

import asyncio
import functools
import json
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl

import jinja2
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from starlette.routing import Route

from beam_spark_runner.core.errors import RunnerError
from beam_spark_runner.core.rendering import message_of
from beam_spark_runner.core.version import VERSION
from beam_spark_runner.job.page.api_forms import job_details, job_summary, message_form
from beam_spark_runner.job.page.gathering import lines_of
from beam_spark_runner.job.page.job_view import job_row, job_view, lines_for
from beam_spark_runner.job.page.observed_jobs import ObservedJobs
from beam_spark_runner.job.page.openapi import openapi
from beam_spark_runner.job.page.page_access import PageAccess, Viewer
from beam_spark_runner.job.page.page_guard import Guard, set_cookie
from beam_spark_runner.job.page.page_protocol import SILENT_FOR_S
from beam_spark_runner.job.page.page_query import PageQuery
from beam_spark_runner.job.page.shown_job import ShownJob
from beam_spark_runner.job.page.step_view import MAX_DRAWN, drawn_graph
from beam_spark_runner.job.page.viewer_pace import ViewerPace

_LOGGER = logging.getLogger(__name__)
_MAX_BODY = 64 << 10
_MAX_RENDERED = 16
_STATIC = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
_STYLED = '<?xml-stylesheet type="text/css" href="/static/page.css"?>'
_OFTEN = 'data-every="2"'
_FORM_TOKEN = "form-token-of-the-viewer"
ACTIONS = ("cancel", "drain", "savepoint", "stacks", "memory")


class PageApp:
    """The page as an ASGI application.

    Args:
        observed: The jobs.
        access: Who may see and act.
        title: The name of what has the jobs.
        is_secure: Whether the page is served over TLS.
    """

    def __init__(
        self, observed: ObservedJobs, access: PageAccess, title: str, *, is_secure: bool = False
    ) -> None:
        self._observed, self._access, self._title = observed, access, title
        self._is_secure = is_secure
        self._lock = threading.Lock()
        self._pace = ViewerPace()
        self._rendered: OrderedDict[tuple[str, ...], tuple[Sequence[object], str]] = OrderedDict()
        self._jinja = jinja2.Environment(
            loader=jinja2.PackageLoader(__package__),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        routes = [
            Route("/", self._jobs),
            Route("/login", self._login, methods=["GET", "POST"]),
            Route("/static/{name}", self._static),
            Route("/jobs/{job_id}", self._job),
            Route("/jobs/{job_id}/log.txt", self._log),
            Route("/jobs/{job_id}/{action}", self._act, methods=["POST"]),
            Route("/api/v1/openapi.json", self._openapi),
            Route("/api/v1/jobs", self._api_jobs),
            Route("/api/v1/jobs/{job_id}", self._api_job),
            Route("/api/v1/jobs/{job_id}/messages", self._api_messages),
            Route("/api/v1/jobs/{job_id}/graph.svg", self._api_graph),
            Route("/api/v1/jobs/{job_id}/{action}", self._api_act, methods=["POST"]),
        ]
        self.asgi = Guard(
            Starlette(routes=routes, exception_handlers={404: _not_found}),
            access,
            is_secure=is_secure,
        )

    def _jobs(self, request: Request) -> Response:
        all_facts = self._observed.all_facts()
        text, state = request.query_params.get("find", ""), request.query_params.get("state", "")

        def render() -> str:
            rows = [job_row(facts) for facts in all_facts]
            states = sorted({row.state for row in rows})
            visible_rows = [
                row
                for row in rows
                if text.lower() in f"{row.name} {row.job_id} {row.error}".lower()
                and state in ("", row.state)
            ]
            return self._html(
                "jobs.html", rows=visible_rows, all=len(rows), states=states, state=state, find=text
            )

        return self._answer(request, ("jobs", text, state), all_facts, render)

    def _job(self, request: Request) -> Response:
        facts = self._observed.facts_of(request.path_params["job_id"])
        if facts is None:
            return self._not_found_page()
        query = PageQuery.from_pairs(facts.job_id, request.query_params.multi_items())
        return self._answer(
            request,
            ("job", query.href()),
            [facts],
            lambda: self._html(
                "job.html",
                view=job_view(facts, query),
                is_read_only=self._access.is_read_only,
                form_token=_FORM_TOKEN,
            ),
        )

    def _answer(
        self,
        request: Request,
        key: tuple[str, ...],
        facts: Sequence[object],
        render: Callable[[], str],
    ) -> Response:
        """Return a page, which is rendered once for all viewers for as long as it is true."""
        with self._lock:  # of many viewers, one renders
            rendered = self._rendered.get(key)
            # The identity of the facts: they are made again when they have changed.
            if rendered is None or not _are_identical(rendered[0], facts):
                rendered = facts, render()
                self._rendered[key] = rendered
                while len(self._rendered) > _MAX_RENDERED:
                    self._rendered.popitem(last=False)
            viewer: Viewer = request.state.viewer
            nonce, cookie = viewer.nonce, ""
            if not nonce and not viewer.is_program:
                nonce, cookie = self._access.new_cookie()
            self._pace.note(nonce, time.monotonic())
            every_s = self._pace.every_s()
        text = rendered[1].replace(_FORM_TOKEN, self._access.form_token(nonce))
        text = text.replace(_OFTEN, f'data-every="{every_s}"', 1)
        answer: Response = HTMLResponse(text)
        return (
            set_cookie(answer, self._access, cookie, is_secure=self._is_secure)
            if cookie
            else answer
        )

    def _log(self, request: Request) -> Response:
        shown = self._observed.jobs_by_id().get(request.path_params["job_id"])
        if shown is None:
            return self._not_found_page()
        query = PageQuery.from_pairs(shown.job_id, request.query_params.multi_items())
        text = "".join(
            f"{line.at} {line.level.upper():7} {line.text}"
            + (f" [{', '.join(filter(None, (line.step, line.worker)))}]" if line.worker else "")
            + (f"\n{line.trace}" if line.trace else "")
            + "\n"
            for line in lines_for(lines_of(shown.record), query)
        )
        answer = PlainTextResponse(text)
        answer.headers["content-disposition"] = 'attachment; filename="job.log"'
        return answer

    async def _act(self, request: Request) -> Response:
        form = await _form(request)
        if not self._access.accepts_form(request.state.viewer, form.get("form_token", "")):
            return self._reply_page("This form is too old: load the page of the job again.", 403)
        job_id = request.path_params["job_id"]
        if form.get("confirm") != job_id:
            return self._reply_page("Nothing was done, since it was not confirmed.", 400)
        status, answer = await run_in_threadpool(
            self._act_on, job_id, request.path_params["action"], form.get("path", "")
        )
        said, trace = (
            answer["said" if status == 200 else "error"],
            answer.get("stacks") or answer.get("memory", ""),
        )
        return self._reply_page(said, status, job_id, trace)

    async def _api_act(self, request: Request) -> Response:
        # No other web site can send this type without asking first, which nobody answers.
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return JSONResponse({"error": "the content type must be application/json"}, 415)
        body = await _body(request)
        try:
            arguments = json.loads(body or b"{}")
        except ValueError:
            arguments = None
        if not isinstance(arguments, dict):
            return JSONResponse({"error": "the body must be a JSON object"}, 400)
        status, answer = await run_in_threadpool(
            self._act_on,
            request.path_params["job_id"],
            request.path_params["action"],
            str(arguments.get("path", "")),
        )
        return JSONResponse(answer, status)

    def _act_on(self, job_id: str, action: str, path: str) -> tuple[int, Mapping[str, str]]:
        """Act on a job; return the status of the answer, and what to say."""
        if self._access.is_read_only:
            return 403, {"error": "This page is read-only."}
        shown = self._observed.jobs_by_id().get(job_id)
        if shown is None or action not in ACTIONS:
            return 404, {"error": "There is no such job or action."}
        trace = {}
        try:
            if action in ("stacks", "memory"):
                ask = shown.stacks if action == "stacks" else shown.memory
                said, trace[action] = _answers_of(ask())
            else:
                said = _run_action(shown, action, path)
        except RunnerError as error:
            return 409, {"error": message_of(error, 4_000)}
        _LOGGER.info("%s: %s, from the job page", job_id, action)
        return 200, {"said": said, **trace}

    def _api_jobs(self, request: Request) -> Response:
        return JSONResponse({"jobs": [job_summary(facts) for facts in self._observed.all_facts()]})

    def _api_job(self, request: Request) -> Response:
        facts = self._observed.facts_of(request.path_params["job_id"])
        return _no_job() if facts is None else JSONResponse(job_details(facts))

    def _api_messages(self, request: Request) -> Response:
        shown = self._observed.jobs_by_id().get(request.path_params["job_id"])
        if shown is None:
            return _no_job()
        query = PageQuery.from_pairs(shown.job_id, request.query_params.multi_items())
        lines = lines_for(lines_of(shown.record), query)
        return JSONResponse({"messages": [message_form(line) for line in lines]})

    def _api_graph(self, request: Request) -> Response:
        facts = self._observed.facts_of(request.path_params["job_id"])
        if facts is None:
            return _no_job()
        query = PageQuery.from_pairs(facts.job_id, request.query_params.multi_items())
        svg = drawn_graph(facts, query)
        if not svg:
            count = len(facts.graph.nodes)
            error = f"{count:,} steps are no picture: {MAX_DRAWN:,} nodes are the most"
            return JSONResponse({"error": error}, 422)
        svg = svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
        return Response(_STYLED + svg, media_type="image/svg+xml")

    def _openapi(self, request: Request) -> Response:
        return JSONResponse(openapi(VERSION))

    def _static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _STATIC:
            return self._not_found_page()
        return Response(
            _static(name), media_type=_STATIC[name], headers={"cache-control": "no-cache"}
        )

    async def _login(self, request: Request) -> Response:
        if request.method == "GET":
            place = request.query_params.get("next", "/")
            return HTMLResponse(self._html("login.html", next=place, is_wrong=False))
        form = await _form(request)
        place = form.get("next", "/")
        if not self._access.is_token(form.get("token", "").strip()):
            return HTMLResponse(self._html("login.html", next=place, is_wrong=True), 403)
        if not place.startswith("/") or place.startswith(("//", "/\\")):
            place = "/"  # an address of another web site
        _, cookie = self._access.new_cookie()
        answer = RedirectResponse(place, 303)
        return set_cookie(answer, self._access, cookie, is_secure=self._is_secure)

    def _reply_page(self, text: str, status: int, job_id: str = "", trace: str = "") -> Response:
        href = PageQuery(job_id=job_id).href() if job_id else "/"
        page = self._html("said.html", text=text, href=href, trace=trace, is_error=status >= 400)
        return HTMLResponse(page, status)

    def _not_found_page(self) -> Response:
        return self._reply_page("There is no such page, or the job ended long ago.", 404)

    def _html(self, template: str, **given: Any) -> str:
        return self._jinja.get_template(template).render(
            title=self._title, version=VERSION, needs_token=self._access.needs_token, **given
        )


def _run_action(shown: ShownJob, action: str, path: str) -> str:
    if action == "cancel":
        shown.cancel()
        return "The job is being cancelled."
    if action == "drain":
        shown.drain()
        return "The job drains: its sources end, and it processes what they have emitted."
    return f"The savepoint of epoch {shown.save(path):,} is in {path}."


def _answers_of(answers: Mapping[str, str | None]) -> tuple[str, str]:
    """Return how many workers have answered, and what."""
    if not answers:
        return "No worker is known that runs a task of this job for more than a second.", ""
    texts = []
    for worker, text in answers.items():
        if text is None:
            text = "It has not answered: it ends, or is stuck in code that holds Python's lock."
        texts.append(f"Worker {worker}\n\n{text or 'No task of this job runs here.'}")
    count = sum(text is not None for text in answers.values())
    said = f"{count} of {len(answers)} workers have answered."
    return said, "\n\n\n".join(texts)


def _are_identical(first: Sequence[object], second: Sequence[object]) -> bool:
    pairs = zip(first, second, strict=False)
    return len(first) == len(second) and all(left is right for left, right in pairs)


async def _body(request: Request) -> bytes:
    """Return the body of a request; "": it is larger than any form of the page, or slower."""

    async def read() -> bytes:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > _MAX_BODY:
                return b""
        return body

    try:
        return await asyncio.wait_for(read(), SILENT_FOR_S)
    except asyncio.TimeoutError:
        return b""


async def _form(request: Request) -> dict[str, str]:
    return dict(
        parse_qsl((await _body(request)).decode("utf-8", "replace"), keep_blank_values=True)
    )


@functools.cache
def _static(name: str) -> bytes:
    return resources.files(__package__).joinpath("static").joinpath(name).read_bytes()


def _no_job() -> Response:
    return JSONResponse({"error": "there is no such job"}, 404)


def _not_found(request: Request, error: Exception) -> Response:
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": "there is no such address"}, 404)
    return PlainTextResponse("There is no such page.", 404)
