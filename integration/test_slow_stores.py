"""An object store over a slow line."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from beam_spark_runner.storage.object_folder import ObjectFolder

CHUNK, CHUNKS = bytes(100_000), 34
EACH_S = 1.0
"""So that all of it takes longer than the 30 seconds that clients allow a request by default."""


AGENTS: list[str] = []
"""Names of the clients that have asked."""


class _SlowObjects(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        AGENTS.append(self.headers["User-Agent"])
        self.send_response(200)
        self.send_header("Content-Length", str(len(CHUNK) * CHUNKS))
        self.send_header("ETag", '"one"')
        self.send_header("Last-Modified", "Wed, 21 Oct 2015 07:28:00 GMT")
        self.end_headers()
        for _ in range(CHUNKS):
            self.wfile.write(CHUNK)
            time.sleep(EACH_S)


@pytest.fixture
def slow_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _SlowObjects)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, "test")
    yield
    server.shutdown()


@pytest.mark.usefixtures("slow_store")
def test_a_large_object_may_take_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client also obeys the other settings in the environment."""
    monkeypatch.setenv("AWS_USER_AGENT", "one of the user's")
    with ObjectFolder("s3://bucket/folder").open("name.delta") as file:
        assert len(file.read()) == len(CHUNK) * CHUNKS
    assert set(AGENTS) == {"one of the user's"}
