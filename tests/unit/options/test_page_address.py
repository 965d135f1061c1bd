"""Options of the page for jobs."""

import importlib.util
from typing import Any

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.options.page_address import PageAddress
from beam_spark_runner.options.server_options import parse_server_options


def of_program(*flags: str) -> PageAddress | None:
    return RunnerConfig.from_options(PipelineOptions([*flags])).page


def test_there_is_no_page_by_default() -> None:
    assert of_program() is None
    assert parse_server_options([]).page is None


def test_the_page_of_a_program() -> None:
    assert of_program("--job_page_port=0") == PageAddress(0, "127.0.0.1")
    given = of_program("--job_page_port=9", "--job_page_read_only")
    assert given == PageAddress(9, "127.0.0.1", is_read_only=True)


@pytest.mark.parametrize(
    ("flags", "option"),
    [
        (["--job_page_port=65536"], "job_page_port"),
        (["--job_page_read_only"], "job_page_read_only"),
        (["--job_page_port=0", "--job_endpoint=host:1"], "job_page_port"),
        (["--job_page_read_only", "--job_endpoint=host:1"], "job_page_read_only"),
    ],
)
def test_a_program_refuses(flags: list[str], option: str) -> None:
    with pytest.raises(OptionsError, match=f"--{option}: "):
        of_program(*flags)


@pytest.mark.parametrize(
    ("flags", "option"),
    [
        (["--job_page_port=-1"], "job_page_port"),
        (["--job_page_host=::1"], "job_page_host"),
        (["--job_page_read_only"], "job_page_read_only"),
        (["--job_page_port=0", "--job_page_host=0.0.0.0"], "job_page_host"),
    ],
)
def test_a_server_refuses(flags: list[str], option: str) -> None:
    with pytest.raises(OptionsError, match=f"--{option}: "):
        parse_server_options(flags)


def test_other_machines_are_let_in_with_tls_or_on_request() -> None:
    open_ = ["--job_page_port=0", "--job_page_host=0.0.0.0"]
    address = PageAddress(0, "0.0.0.0")
    assert parse_server_options([*open_, "--insecure"]).page == address
    tls = ["--tls_cert=cert.pem", "--tls_key=key.pem"]
    assert parse_server_options([*open_, *tls]).page == address


def test_libraries_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec

    def find_spec(name: str, *others: Any) -> Any:
        return None if name == "uvicorn" else found(name, *others)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    with pytest.raises(
        OptionsError, match=r"needs uvicorn: pip install 'beam-spark-runner\[page\]'"
    ):
        of_program("--job_page_port=0")
