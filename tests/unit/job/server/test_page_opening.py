"""The page of a job server, with the server's own token."""

import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from beam_spark_runner.job.server.page_opening import open_page
from beam_spark_runner.options.page_address import PageAddress
from beam_spark_runner.options.server_access import ServerAccess
from beam_spark_runner.options.server_options import ServerConfig

TOKEN = "a token that is long enough".replace(" ", "-")
NO_JOBS: Any = SimpleNamespace(all=list)


def load(url: str, token: str = "") -> int:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"{url}api/v1/jobs", headers=headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return int(answer.status)


def test_the_page_demands_the_token_of_clients(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    config = ServerConfig(page=PageAddress(0), access=ServerAccess(token_file=str(file)))
    port = open_page(config, NO_JOBS, lambda: None)
    try:
        with pytest.raises(urllib.error.HTTPError, match="401"):
            load(port.url)
        assert load(port.url, TOKEN) == 200
    finally:
        port.close()


def test_a_server_without_a_token_demands_none() -> None:
    port = open_page(ServerConfig(page=PageAddress(0)), NO_JOBS, lambda: None)
    try:
        assert load(port.url) == 200
    finally:
        port.close()
