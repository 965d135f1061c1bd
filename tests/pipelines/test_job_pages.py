"""The page of pipelines that run: what it has seen of them."""

import http.cookiejar
import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.core.errors import BundleFailedError
from beam_spark_runner.job.page.page_port import PagePort
from beam_spark_runner.job.page.program_page import close_pages
from beam_spark_runner.job.server.listed_jobs import ListedJobs
from beam_spark_runner.options.page_address import PageAddress
from tests.harness.processes import wait_for
from tests.pipelines.served_jobs import Obstacle, serving, state_of
from tests.pipelines.test_watching_streams import windows
from tests.spark.endless import nothing_goes_on, started  # noqa: F401  (a fixture)

PAGE = "--job_page_port=0"


@pytest.fixture(autouse=True)
def no_page_stays() -> Iterator[None]:
    yield
    close_pages()


class Browser:
    """Loads pages, and has cookies."""

    def __init__(self, page_url: str) -> None:
        self._url = page_url
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        )
        self.page = self._load(page_url)

    def _load(self, url: str) -> str:
        with self._opener.open(url, timeout=60) as answer:
            return str(answer.read().decode())

    def job(self) -> dict[str, Any]:
        """Return the JSON of the job."""
        address = self._url.partition("?")[0].replace("/jobs/", "/api/v1/jobs/")
        return dict(json.loads(self._load(address)))


def run(spark: Any, build: Any, *flags: str) -> Any:
    options = PipelineOptions([PAGE, "--job_name=orders", *flags])
    pipeline = beam.Pipeline(runner=SparkPortableRunner(spark=spark), options=options)
    build(pipeline)
    return pipeline.run()


SAMPLED = (
    "--experiments=enable_data_sampling",
    "--sample_redaction=tests.pipelines.redacting:redact",
)


def act(result: Any, action: str, **body: str) -> dict[str, Any]:
    """Act on a job as a program does."""
    address, _, token = result.page_url.replace("/jobs/", "/api/v1/jobs/").partition("?token=")
    headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
    coded = json.dumps(body).encode()
    asked = urllib.request.Request(f"{address}/{action}", coded, headers, method="POST")
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return dict(json.load(answer))


def words(p: beam.Pipeline) -> None:
    def see(word: str) -> tuple[str, int]:
        Metrics.distribution("here", "lengths").update(len(word))
        return word, 1

    rates = p | "Rates" >> beam.Create([3])
    pairs = p | "Words" >> beam.Create(["a", "bb", "a"]) | "See" >> beam.Map(see)
    sums = pairs | "Sum" >> beam.CombinePerKey(sum)
    side = beam.pvalue.AsSingleton(rates)
    _ = sums | "Convert" >> beam.Map(lambda pair, rate: (pair[0], pair[1] * rate), rate=side)


def test_a_batch_pipeline_that_has_ended(spark_session: Any) -> None:
    result = run(spark_session, words)
    assert result.page_url in result._repr_html_()
    result.wait_until_finish()
    job = Browser(result.page_url).job()
    assert (job["name"], job["state"], job["is_streaming"]) == ("orders", "done", False)
    assert job["sentence"]["text"].startswith("It is done after")
    steps = {step["name"]: step for step in job["steps"]}
    assert steps["See"]["elements_in"] == steps["See"]["elements_out"] == 3
    assert steps["See"]["metrics"] == {"here:lengths": "3 values, 1 to 2, mean 1.3"}
    assert {step["state"] for step in steps.values()} == {"done"}
    kinds = {edge["kind"] for edge in job["edges"]}
    assert kinds == {"pointwise", "exchange", "side input"}
    assert [each["ended_s"] is not None for each in job["segment_times"]] == [True] * job[
        "segments"
    ]
    assert job["options"]["job_name"] == "orders"
    assert "Beam stage" in job["plan"]


def test_a_step_that_fails(spark_session: Any) -> None:
    def parse(element: int) -> float:
        return 1 / element

    def build(p: beam.Pipeline) -> None:
        _ = p | beam.Create([1, 0]) | "Parse <b>" >> beam.Map(parse)

    result = run(spark_session, build)
    with pytest.raises(BundleFailedError):
        result.wait_until_finish()
    browser = Browser(result.page_url)
    assert "It has failed in Parse &lt;b&gt;: ZeroDivisionError: division by zero" in browser.page
    job = browser.job()
    assert job["sentence"]["step"] == "Parse <b>"
    assert {step["state"] for step in job["steps"] if step["name"] == "Parse <b>"} == {"failed"}


@pytest.mark.usefixtures("nothing_goes_on")
def test_a_stream_whose_source_holds_the_watermark(spark_session: Any, tmp_path: Path) -> None:
    result = started(spark_session, windows, PAGE)
    browser = Browser(result.page_url)
    wait_for(lambda: "holds the watermark" in browser.job()["sentence"]["text"])
    job = browser.job()
    assert job["sentence"]["step"] == "Read/Process"
    steps = {step["name"]: step for step in job["steps"]}
    assert steps["Read/Process"]["state"] == "holding"
    assert steps["Read/Process"]["held_by"] == "restriction"
    assert steps["Group"]["watermarks"]["output_s"] == 100.0
    assert job["epochs"]
    assert any(state["records"] for state in job["stored"].values())
    assert "The savepoint of epoch" in act(result, "savepoint", path=str(tmp_path / "one"))["said"]
    wait_for(lambda: browser.job()["savepoints"])
    (savepoint,) = browser.job()["savepoints"]
    files = [each for each in (tmp_path / "one").rglob("*") if each.suffix != ".manifest"]
    assert savepoint["bytes"] == sum(each.stat().st_size for each in files) > 0


def test_the_stack_and_input_of_a_step_that_is_stuck(spark_session: Any, tmp_path: Path) -> None:
    def wait_for_nothing(element: int) -> int:
        while not (tmp_path / "continues").exists():
            time.sleep(0.01)
        return element

    def build(p: beam.Pipeline) -> None:
        _ = p | beam.Create([4111]) | "Look up" >> beam.Map(wait_for_nothing)

    result = run(spark_session, build, *SAMPLED)
    browser = Browser(result.page_url)

    def samples() -> list[str]:
        return [text for edge in browser.job()["edges"] for text in edge["samples"]]

    def stacks() -> str:
        return str(act(result, "stacks")["stacks"])

    try:
        wait_for(lambda: "wait_for_nothing" in stacks())
        assert "in Look up:" in stacks()
        wait_for(lambda: "'…' for 4111" in samples())
        assert all(text.startswith("'…' for ") for text in samples())
    finally:
        (tmp_path / "continues").touch()
    result.wait_until_finish()
    assert browser.job()["state"] == "done"
    assert stacks() == ""


def test_one_page_shows_all_pipelines_of_a_program(spark_session: Any) -> None:
    first, other = (run(spark_session, words) for _ in range(2))
    for each in (first, other):
        each.wait_until_finish()
    port = first.page_url.partition("/jobs/")[0]
    assert other.page_url.startswith(f"{port}/jobs/")
    page = Browser(first.page_url.replace(f"/jobs/{first.job_id}", "/")).page
    assert f"/jobs/{first.job_id}" in page
    assert f"/jobs/{other.job_id}" in page


@pytest.mark.grpc
def test_the_jobs_of_a_server(tmp_path: Path) -> None:
    obstacle = Obstacle(tmp_path / "obstacle")
    with serving(tmp_path) as server:
        port = PagePort(PageAddress(0), ListedJobs(server.jobs, lambda: None), "Jobs", None)
        try:
            job = server.submit(obstacle.two_levels, job_name="two levels")
            waiting = server.submit(obstacle.two_levels, job_name="the next one")
            obstacle.wait_for_user()
            found = Browser(f"{port.url}jobs/{job.job_id}").job()
            assert (found["name"], found["state"]) == ("two levels", "running")
            queued = Browser(f"{port.url}jobs/{waiting.job_id}").job()
            assert queued["sentence"]["text"].startswith("It waits for its turn")
            server.jobs.cancel(waiting.job_id)
            obstacle.let_through()
            assert state_of(job) == "DONE"
            wait_for(lambda: job.job_metrics() is None)
            found = Browser(f"{port.url}jobs/{job.job_id}").job()
            assert found["state"] == "done"
            assert found["steps"], "what was known of it stays after the end"
        finally:
            port.close()
    with serving(tmp_path) as next_server:
        port = PagePort(PageAddress(0), ListedJobs(next_server.jobs, lambda: None), "Jobs", None)
        try:
            found = Browser(f"{port.url}jobs/{job.job_id}").job()
            assert (found["name"], found["state"]) == ("two levels", "done")
        finally:
            port.close()


def test_many_viewers_look_at_a_job_once_in_a_second(spark_session: Any) -> None:
    result = run(spark_session, words)
    result.wait_until_finish()
    browsers = [Browser(result.page_url) for _ in range(5)]
    seen: list[str] = []
    threads = [
        threading.Thread(target=lambda each=each: seen.append(each.job()["state"]))
        for each in browsers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == ["done"] * 5


_WITHOUT = """
import sys
import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
if __name__ == "__main__":
    options = PipelineOptions(["--spark_master_url=in-process", "--runner=SparkPortableRunner"])
    with beam.Pipeline(options=options) as p:
        p | beam.Create([1])
    wanted = ("starlette", "uvicorn", "jinja2", "anyio", "beam_spark_runner.job.page")
    print([name for name in sys.modules if name.startswith(wanted)])
"""


def test_without_the_option_nothing_of_the_page_is_imported(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_WITHOUT)
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stdout
