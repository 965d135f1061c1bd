"""The page over HTTP: routes, token, forms, headers. Nothing is sent over a network."""

import re
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from beam_spark_runner.core.errors import RunnerError
from beam_spark_runner.job.page import job_view, page_app
from beam_spark_runner.job.page.page_access import PageAccess
from beam_spark_runner.job.page.page_app import PageApp
from beam_spark_runner.observing.step_graph import StepGraph
from tests.unit.job.page.observed import EVIL, FixedJobs, failed, node, stream

TOKEN = "a token of some length"
HOST = "http://127.0.0.1:8080"
FOLDER = Path(page_app.__file__).parent


def client(
    jobs: FixedJobs | None = None,
    token: str | None = None,
    *,
    is_read_only: bool = False,
    host: str = "127.0.0.1",
) -> TestClient:
    access = PageAccess(token, host, 8080, is_read_only=is_read_only)
    observed: Any = jobs or FixedJobs(stream(), failed())
    app = PageApp(observed, access, "Job server")
    return TestClient(app.asgi, base_url=HOST)


def form_token(page: str) -> str:
    match = re.search(r'name="form_token" value="([0-9a-f]+)"', page)
    assert match
    return match[1]


def test_the_list_says_why_jobs_lag_or_fail() -> None:
    page = client().get("/")
    assert page.status_code == 200
    assert "Read/Process holds the watermark" in page.text
    assert "It has failed in" in page.text


def test_the_list_is_filtered_by_state_and_name() -> None:
    page = client().get("/?state=failed&find=imp").text
    assert 'href="/jobs/6"' in page
    assert 'href="/jobs/7"' not in page
    assert "Show all 2" in client().get("/?find=nothing").text
    assert "No job has been submitted yet" in client(FixedJobs()).get("/").text


@pytest.mark.parametrize("path", ["/", "/jobs/7", "/jobs/6", "/jobs/7?open=*&step=Sum", "/login"])
def test_every_text_is_escaped(path: str) -> None:
    page = client().get(path).text
    # The scripts of a page are the one that it has from its own server.
    assert re.findall(r"<script[^>]*>", page) == ['<script src="/static/page.js" defer>']
    assert not re.search(r" (on\w+|style)=", page)


def test_the_step_with_a_bad_name_is_on_its_page() -> None:
    page = client().get("/jobs/7", params={"step": EVIL}).text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert EVIL not in page


def test_only_pictures_are_not_escaped() -> None:
    for template in (FOLDER / "templates").glob("*.html"):
        for expression in re.findall(r"\{\{(.*?)\}\}", template.read_text()):
            assert "safe" not in expression or re.search(r"_svg\|safe$", expression.strip())


@pytest.mark.parametrize("path", ["/", "/jobs/7", "/nothing", "/static/page.js", "/api/v1/jobs"])
def test_headers_of_every_answer(path: str) -> None:
    headers = client().get(path).headers
    policy = headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "same-origin"


@pytest.mark.parametrize("path", ["/jobs/none", "/nothing", "/static/../page_app.py", "/static/x"])
def test_unknown_addresses_are_not_found(path: str) -> None:
    assert client().get(path).status_code == 404


@pytest.mark.parametrize("path", ["/", "/jobs/7", "/jobs/7/log.txt"])
def test_without_the_token_pages_lead_to_its_form(path: str) -> None:
    answer = client(token=TOKEN).get(path, follow_redirects=False)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/login?next=%2F")


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/api/v1/jobs/7", "/api/v1/openapi.json"])
def test_json_needs_the_token(path: str) -> None:
    with_token = client(token=TOKEN)
    assert with_token.get(path).status_code == 401
    wrong = {"authorization": "Bearer another one"}
    assert with_token.get(path, headers=wrong).status_code == 401
    right = {"authorization": f"Bearer {TOKEN}"}
    assert with_token.get(path, headers=right).status_code == 200


def test_actions_need_the_token() -> None:
    jobs = FixedJobs(stream())
    with_token = client(jobs, TOKEN)
    assert with_token.post("/api/v1/jobs/7/cancel", json={}).status_code == 401
    assert with_token.post("/jobs/7/cancel", follow_redirects=False).status_code == 303
    assert jobs.called == []


def test_the_token_in_the_address_becomes_a_cookie() -> None:
    with_token = client(token=TOKEN)
    answer = with_token.get(f"/jobs/7?token={TOKEN}&step=Sum", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs/7?step=Sum")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert TOKEN not in cookie
    assert with_token.get("/jobs/7").status_code == 200


def test_no_token_leads_to_another_site() -> None:
    answer = client(token=TOKEN).get(
        f"{HOST}//evil.example/x?token={TOKEN}", follow_redirects=False
    )
    assert answer.headers["location"] == "/evil.example/x"


def test_the_form_leads_to_what_was_asked_for() -> None:
    answer = client(token=TOKEN).get("/jobs/7?step=Sum", follow_redirects=False)
    assert answer.headers["location"] == "/login?next=%2Fjobs%2F7%3Fstep%3DSum"


def test_a_wrong_token_in_the_address() -> None:
    with_token = client(token=TOKEN)
    assert with_token.get("/?token=wrong", follow_redirects=False).headers["location"] == "/login"
    assert "set-cookie" not in with_token.get("/?token=wrong").headers


def test_the_form_of_the_token() -> None:
    with_token = client(token=TOKEN)
    assert "Token" in with_token.get("/login?next=/jobs/7").text
    wrong = with_token.post("/login", data={"token": "wrong", "next": "/jobs/7"})
    assert (wrong.status_code, "This is not the token" in wrong.text) == (403, True)
    right = with_token.post(
        "/login", data={"token": TOKEN, "next": "/jobs/7"}, follow_redirects=False
    )
    assert (right.status_code, right.headers["location"]) == (303, "/jobs/7")
    assert with_token.get("/").status_code == 200


@pytest.mark.parametrize("place", ["https://evil.example", "//evil.example", "/\\evil.example"])
def test_the_form_leads_to_no_other_site(place: str) -> None:
    answer = client(token=TOKEN).post(
        "/login", data={"token": TOKEN, "next": place}, follow_redirects=False
    )
    assert answer.headers["location"] == "/"


@pytest.mark.parametrize("action", ["cancel", "drain", "savepoint"])
def test_forms_with_the_token_act_on_the_job(action: str) -> None:
    jobs = FixedJobs(stream())
    page = client(jobs)
    token = form_token(page.get("/jobs/7").text)
    data = {"form_token": token, "confirm": "7", "path": "/there"}
    answer = page.post(f"/jobs/7/{action}", data=data)
    assert answer.status_code == 200
    assert jobs.called == [{"savepoint": "save 7 /there"}.get(action, f"{action} 7")]


def test_stacks_are_shown_after_a_form_and_escaped() -> None:
    page = client(FixedJobs(stream()))
    assert page.get("/jobs/7/stacks").status_code == 405
    data = {"form_token": form_token(page.get("/jobs/7").text), "confirm": "7"}
    answer = page.post("/jobs/7/stacks", data=data).text
    assert "1 of 2 workers have answered." in answer
    assert "in &lt;script&gt;" in answer
    assert EVIL not in answer
    assert "It has not answered" in answer
    assert "No worker is known" in page.post("/jobs/7/memory", data=data).text
    assert EVIL in page.post("/api/v1/jobs/7/stacks", json={}).json()["stacks"]


def test_many_viewers_load_the_page_less_often() -> None:
    access = PageAccess(None, "127.0.0.1", 8080, is_read_only=False)
    jobs: Any = FixedJobs(stream())
    app = PageApp(jobs, access, "Job server").asgi
    (first, *_, last) = (TestClient(app, base_url=HOST).get("/jobs/7").text for _ in range(20))
    assert 'data-every="2"' in first
    assert 'data-every="4"' in last


def test_viewers_share_a_page_but_not_the_token_of_its_forms() -> None:
    jobs = FixedJobs(stream())
    access = PageAccess(None, "127.0.0.1", 8080, is_read_only=False)
    app = PageApp(jobs, access, "Job server").asgi  # type: ignore[arg-type]
    one, other = (TestClient(app, base_url=HOST) for _ in range(2))
    token, others_token = (form_token(each.get("/jobs/7").text) for each in (one, other))
    assert token != others_token
    data = {"form_token": others_token, "confirm": "7"}
    assert one.post("/jobs/7/cancel", data=data).status_code == 403
    assert jobs.called == []


@pytest.mark.parametrize(
    ("data", "status"),
    [
        pytest.param({"confirm": "7"}, 403, id="no token of the form"),
        pytest.param({"form_token": "0", "confirm": "7"}, 403, id="a wrong one"),
        pytest.param({"form_token": None}, 400, id="not confirmed"),
        pytest.param({"form_token": None, "confirm": "6"}, 400, id="confirmed for another job"),
        pytest.param({"form_token": None, "confirm": "7", "x": "y" * 70_000}, 403, id="too long"),
    ],
)
def test_forms_without_token_or_confirmation_do_nothing(
    data: dict[str, str | None], status: int
) -> None:
    jobs = FixedJobs(stream())
    page = client(jobs)
    token = form_token(page.get("/jobs/7").text)
    sent = {name: token if value is None else value for name, value in data.items()}
    assert page.post("/jobs/7/cancel", data=sent).status_code == status
    assert jobs.called == []


def test_a_form_of_another_site() -> None:
    jobs = FixedJobs(stream())
    page = client(jobs)
    data = {"form_token": form_token(page.get("/jobs/7").text), "confirm": "7"}
    evil = {"origin": "https://evil.example"}
    assert page.post("/jobs/7/cancel", data=data, headers=evil).status_code == 403
    assert page.post("/api/v1/jobs/7/cancel", json={}, headers=evil).status_code == 403
    own = {"origin": HOST}
    assert page.post("/jobs/7/cancel", data=data, headers=own).status_code == 200
    assert jobs.called == ["cancel 7"]


def test_actions_are_no_gets() -> None:
    jobs = FixedJobs(stream())
    assert client(jobs).get("/jobs/7/cancel").status_code == 405
    assert client(jobs).get("/api/v1/jobs/7/cancel").status_code == 405
    assert jobs.called == []


def test_programs_act_with_json_only() -> None:
    jobs = FixedJobs(stream())
    page = client(jobs)
    assert page.post("/api/v1/jobs/7/cancel", data={"a": "b"}).status_code == 415
    assert page.post("/api/v1/jobs/7/cancel", content="x").status_code == 415
    typed = {"content-type": "application/json"}
    assert page.post("/api/v1/jobs/7/cancel", content="[", headers=typed).status_code == 400
    assert page.post("/api/v1/jobs/7/cancel", content="[]", headers=typed).status_code == 400
    assert jobs.called == []
    answer = page.post("/api/v1/jobs/7/savepoint", json={"path": "/there"})
    assert answer.json() == {"said": "The savepoint of epoch 17 is in /there."}
    assert page.post("/api/v1/jobs/7/explode", json={}).status_code == 404
    assert page.post("/api/v1/jobs/8/cancel", json={}).status_code == 404


def test_a_read_only_page_has_no_forms_and_refuses_actions() -> None:
    jobs = FixedJobs(stream())
    page = client(jobs, is_read_only=True)
    assert "form_token" not in page.get("/jobs/7").text
    answer = page.post("/api/v1/jobs/7/cancel", json={})
    assert (answer.status_code, answer.json()["error"]) == (403, "This page is read-only.")
    assert jobs.called == []


def test_an_action_that_the_job_refuses() -> None:
    jobs = FixedJobs(stream())
    jobs.error = RunnerError(f"it runs in batch {EVIL}")
    page = client(jobs)
    data = {"form_token": form_token(page.get("/jobs/7").text), "confirm": "7"}
    answer = page.post("/jobs/7/drain", data=data)
    assert answer.status_code == 409
    assert "it runs in batch &lt;script&gt;" in answer.text


@pytest.mark.parametrize("name", ["evil.example", "127.0.0.1.evil.example:8080", "[", ""])
def test_other_names_of_this_machine_are_refused(name: str) -> None:
    assert client().get("/", headers={"host": name}).status_code == 421


@pytest.mark.parametrize("name", ["localhost:9", "127.0.0.1:8080", "[::1]:8080"])
def test_names_of_the_loopback_device(name: str) -> None:
    assert client().get("/", headers={"host": name}).status_code == 200


def test_a_page_that_others_reach_has_any_name() -> None:
    page = client(token=TOKEN, host="0.0.0.0").get("/login", headers={"host": "jobs.example"})
    assert page.status_code == 200


def test_log_lines_for_download_and_as_json() -> None:
    page = client()
    log = page.get("/jobs/7/log.txt")
    assert f"hello {EVIL}" in log.text
    assert log.headers["content-type"].startswith("text/plain")
    assert log.headers["content-disposition"].startswith("attachment")
    (message,) = page.get("/api/v1/jobs/7/messages?level=info").json()["messages"]
    assert (message["level"], message["text"]) == ("info", f"hello {EVIL}")
    assert page.get("/api/v1/jobs/7/messages?level=error").json()["messages"] == []
    assert page.get("/api/v1/jobs/7/messages?worker=1").json()["messages"] == []


def test_log_lines_of_a_worker_are_chosen_from_a_list() -> None:
    page = client().get(f"/jobs/7?worker={EVIL}").text
    assert "<option selected>&lt;script&gt;alert(1)&lt;/script&gt;</option>" in page
    assert "<option>worker 3</option>" in page


def test_the_api_describes_jobs_as_json() -> None:
    jobs = client().get("/api/v1/jobs").json()["jobs"]
    assert [job["id"] for job in jobs] == ["7", "6"]
    assert client().get("/api/v1/jobs/7").json()["epoch"] == 17
    assert client().get("/api/v1/jobs/8").status_code == 404
    graph = client().get("/api/v1/jobs/7/graph.svg?open=*")
    assert graph.headers["content-type"].startswith("image/svg+xml")


def test_a_picture_has_not_too_many_steps() -> None:
    nodes = tuple(node(f"Part {number // 10}/Step {number}", "c") for number in range(20_000))
    pages = client(FixedJobs(stream(graph=StepGraph(nodes), status=None)))
    for path in ("/api/v1/jobs/7/graph.svg", "/api/v1/jobs/7/graph.svg?open=*"):
        refused = pages.get(path)
        assert (refused.status_code, refused.json()) == (
            422,
            {"error": "20,000 steps are no picture: 1,500 nodes are the most"},
        )
    page = pages.get("/jobs/7?find=Step 19999").text
    assert "20000 steps are too many for a picture" in page
    assert "Part 1999/Step 19999" in page


def test_openapi_describes_every_address() -> None:
    found = client().get("/api/v1/openapi.json").json()
    described = {*found["paths"]}
    for action in page_app.ACTIONS:
        assert f"/api/v1/jobs/{{job_id}}/{action}" in described
    for path, methods in found["paths"].items():
        address = path.replace("{job_id}", "7")
        for method in methods:
            answer = client().request(method, address, json={} if method == "post" else None)
            assert answer.status_code == 200, path


def test_one_rendering_is_for_all_viewers(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = []

    def noted(facts: Any, query: Any) -> Any:
        rendered.append(query)
        return job_view.job_view(facts, query)

    monkeypatch.setattr(page_app, "job_view", noted)
    jobs = FixedJobs(stream())
    page = client(jobs)
    for _ in range(20):
        assert page.get("/jobs/7").status_code == 200
    assert len(rendered) == 1
    jobs.facts["7"] = stream()
    page.get("/jobs/7")
    assert len(rendered) == 2
