"""Options of TLS and tokens: what goes together."""

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.options.server_access import (
    ClientAccess,
    ServerAccess,
    check_client_access,
    host_of,
)
from beam_spark_runner.options.server_options import parse_server_options


@pytest.mark.parametrize(
    ("flags", "option"),
    [
        (["--tls_cert=c"], "tls_cert"),
        (["--tls_key=k"], "tls_key"),
        (["--tls_ca=a"], "tls_ca"),
        (["--tls_cert=c", "--tls_key=k", "--insecure"], "insecure"),
        (["--client_token_file=t", "--job_host=192.0.2.1"], "job_host"),
    ],
)
def test_options_of_a_server_that_do_not_go_together(flags: list[str], option: str) -> None:
    with pytest.raises(OptionsError, match=f"--{option}: "):
        parse_server_options(flags)


def test_tls_lets_other_machines_in() -> None:
    files = {"cert": "c", "key": "k", "ca": "a", "token_file": "t"}
    flags = ["--tls_cert=c", "--tls_key=k", "--tls_ca=a", "--client_token_file=t"]
    given = parse_server_options(["--job_host=192.0.2.1", *flags])
    assert given.access == ServerAccess(**files)


@pytest.mark.parametrize(
    ("flags", "option"),
    [
        (["--job_server_ca=a"], "job_server_ca"),
        (["--job_server_token_file=t"], "job_server_token_file"),
        (["--job_endpoint=h:1", "--job_server_cert=c", "--job_server_key=k"], "job_server_cert"),
        (["--job_endpoint=h:1", "--job_server_ca=a", "--job_server_cert=c"], "job_server_cert"),
        (["--job_endpoint=h:1", "--job_server_ca=a", "--job_server_key=k"], "job_server_key"),
        (["--job_endpoint=h:1", "--job_server_token_file=t"], "job_server_token_file"),
        (["--job_endpoint=h:1", "--artifact_endpoint=h"], "artifact_endpoint"),
    ],
)
def test_options_of_a_client_that_do_not_go_together(flags: list[str], option: str) -> None:
    with pytest.raises(OptionsError, match=f"--{option}: "):
        RunnerConfig.from_options(PipelineOptions(flags))


def test_options_of_a_client() -> None:
    flags = ["ca=a", "cert=c", "key=k", "token_file=t"]
    options = PipelineOptions(["--job_endpoint=h:1", *(f"--job_server_{flag}" for flag in flags)])
    access = RunnerConfig.from_options(options).job_server_access
    assert access == ClientAccess(ca="a", cert="c", key="k", token_file="t")


@pytest.mark.parametrize("endpoint", ["localhost:1", "127.0.0.1:1", "[::1]:1"])
def test_a_token_does_not_leave_the_machine_in_the_clear(endpoint: str) -> None:
    check_client_access(ClientAccess(token_file="t"), endpoint)


def test_the_host_of_an_endpoint() -> None:
    assert [host_of(each) for each in ("a.b:1", "[::1]:1")] == ["a.b", "::1"]


def test_files_take_the_token_along() -> None:
    token = ClientAccess(token_file="t")
    check_client_access(token, "localhost:1", "localhost:2")
    with pytest.raises(OptionsError, match=r"would be sent to far\.example:2 without encryption"):
        check_client_access(token, "localhost:1", "far.example:2")
    check_client_access(ClientAccess(token_file="t", ca="c"), "localhost:1", "far.example:2")
    flags = ["--job_endpoint=localhost:1", "--artifact_endpoint=h:2", "--job_server_token_file=t"]
    with pytest.raises(OptionsError, match="would be sent to h:2 without encryption"):
        RunnerConfig.from_options(PipelineOptions(flags))
