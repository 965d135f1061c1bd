"""``--lineage_url``: what a server of OpenLineage gets."""

import json
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from beam_spark_runner.core.errors import BundleFailedError, OptionsError
from beam_spark_runner.core.version import VERSION
from beam_spark_runner.job.run import lineage
from beam_spark_runner.transforms import WriteToKafka
from tests.harvest import run
from tests.pipelines.kafka_in_memory import Kafka

client = pytest.importorskip("openlineage.client")
WITHIN_S = 60


class Server(HTTPServer):
    """Takes events.

    Attributes:
        events: What it has got.
        credentials: The header ``Authorization`` of each request.
        status: Of its answers.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.events: list[dict[str, Any]] = []
        self.credentials: list[str | None] = []
        self.status = 201

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.path == "/api/v1/lineage"
        self.server.credentials.append(self.headers["Authorization"])
        if self.server.status < 400:
            self.server.events.append(json.loads(body))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def run_here(build: Callable[[beam.Pipeline], Any], url: str, *flags: str) -> None:
    """Run a pipeline in this process, and wait until its lineage is reported."""
    more = "--spark_master_url=in-process", f"--lineage_url={url}", "--job_name=shop", *flags
    try:
        run(None, build, *more)  # type: ignore[arg-type]
    finally:
        for thread in threading.enumerate():
            if thread.name.startswith("beam-lineage"):
                thread.join(WITHIN_S)


def copies(source: Path, target: Path) -> Callable[[beam.Pipeline], Any]:
    return lambda p: p | beam.io.ReadFromText(str(source)) | beam.io.WriteToText(str(target))


def test_files_that_are_read_and_written(server: Server, tmp_path: Path) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "out"
    source.write_text("a\nb\n")
    run_here(copies(source, target), server.url)
    start, end = server.events
    assert [start["eventType"], end["eventType"]] == ["START", "COMPLETE"]
    assert start["run"]["runId"] == end["run"]["runId"]
    assert (end["job"]["namespace"], end["job"]["name"]) == ("default", "shop")
    assert end["job"]["facets"]["jobType"]["processingType"] == "BATCH"
    assert end["producer"] == f"urn:beam-spark-runner:{VERSION}"
    inputs = [(each["namespace"], each["name"]) for each in end["inputs"]]
    assert ("file", str(source)) in inputs
    outputs = [each["name"] for each in end["outputs"]]
    assert outputs
    assert all(name.startswith(str(tmp_path)) for name in outputs)


def test_topics_that_are_written(server: Server) -> None:
    config = {"bootstrap.servers": "broker:9092"}

    def build(p: beam.Pipeline) -> None:
        pair = beam.Map(lambda _: (b"k", b"v")).with_output_types(tuple[bytes, bytes])
        p | beam.Create([1]) | pair | WriteToKafka(config, "orders")

    with Kafka().serving():
        run_here(build, server.url)
    (output,) = server.events[-1]["outputs"]
    assert (output["namespace"], output["name"]) == ("kafka://broker:9092", "orders")


def test_a_pipeline_that_fails(server: Server) -> None:
    def build(p: beam.Pipeline) -> None:
        p | beam.Create([1]) | beam.Map(lambda _: 1 // 0)

    with pytest.raises(BundleFailedError):
        run_here(build, server.url, "--streaming")
    start, end = server.events
    assert (start["eventType"], end["eventType"]) == ("START", "FAIL")
    assert "division" in end["run"]["facets"]["errorMessage"]["message"]
    assert end["job"]["facets"]["jobType"]["processingType"] == "STREAMING"


@pytest.mark.parametrize("status", [500, 0])
def test_a_server_that_does_not_answer_is_a_warning(
    server: Server, caplog: pytest.LogCaptureFixture, status: int, tmp_path: Path
) -> None:
    server.status = status
    url = server.url if status else "http://me:secret@127.0.0.1:9"
    run_here(lambda p: p | beam.Create([1]) | beam.Map(str), url)
    (warning,) = (text for text in caplog.messages if "the lineage of the pipeline" in text)
    assert "did not take the event START" in warning
    assert "secret" not in warning


def with_user(url: str) -> str:
    return url.replace("http://", "http://me:sec%2Fret@")


def test_user_and_password_of_the_url(server: Server) -> None:
    run_here(lambda p: p | beam.Create([1]) | beam.Map(str), with_user(server.url))
    assert set(server.credentials) == {f"Basic {b64encode(b'me:sec/ret').decode()}"}


@pytest.mark.parametrize("status", [401, 500])
def test_user_and_password_are_not_logged(
    server: Server, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    server.status = status
    with caplog.at_level("DEBUG", "openlineage"):
        run_here(lambda p: p | beam.Create([1]) | beam.Map(str), with_user(server.url))
    assert f"{status} " in caplog.text or "too many" in caplog.text
    assert "ret@" not in caplog.text


def test_names_that_cannot_be_found_are_one_warning(
    server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: object) -> None:
        raise ValueError("no names")

    monkeypatch.setattr(lineage, "tables_in", fails)
    run_here(lambda p: p | beam.Create([1]) | beam.Map(str), server.url)
    assert [each["eventType"] for each in server.events] == ["START", "COMPLETE"]
    (warning,) = (text for text in caplog.messages if "the lineage of the pipeline" in text)
    assert "no names" in warning


@pytest.mark.parametrize("url", ["ftp://me:secret@host", "http://me:sec/ret@host"])
def test_the_password_of_a_wrong_url_is_not_shown(url: str) -> None:
    with pytest.raises(OptionsError, match=r"'…@host' is not the URL of a server") as raised:
        run_here(lambda p: p | beam.Create([1]), url)
    assert "sec" not in str(raised.value)


@pytest.mark.parametrize("url", ["marquez", "ftp://host", "http://host:port"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(OptionsError, match=r"--lineage_url: .* is not the URL of a server"):
        run_here(lambda p: p | beam.Create([1]), url)
