"""TLS and tokens between clients and a job server; without Spark."""

import contextlib
import functools
import os
import queue
import socket
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import (
    beam_artifact_api_pb2,
    beam_artifact_api_pb2_grpc,
    beam_job_api_pb2,
    beam_job_api_pb2_grpc,
)

from beam_spark_runner.core.errors import JobServerLostError, OptionsError
from beam_spark_runner.job.client import reaching, submission
from beam_spark_runner.job.server.api import JobApi
from beam_spark_runner.options.server_options import parse_server_options
from beam_spark_runner.runner import SparkPortableRunner
from tests.unit.job.server.served import Gate, request, served
from tests.unit.job.server.test_staging import artifact

pytestmark = pytest.mark.grpc

TOKEN = "correct horse battery staple".replace(" ", "-")


class Papers:
    """A CA, certificates of it, and a token, as files."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.ca = str(folder / "ca.pem")
        authority.cert_pem.write_to_path(self.ca)
        self.server = self._pair(folder / "server", authority.issue_cert("localhost", "127.0.0.1"))
        self.client = self._pair(folder / "client", authority.issue_cert("me@example.org"))
        self.token = str(folder / "token")
        Path(self.token).write_text(f"{TOKEN}\n")
        Path(self.token).chmod(0o600)

    @staticmethod
    def _pair(path: Path, pair: trustme.LeafCert) -> tuple[str, str]:
        cert, key = f"{path}.pem", f"{path}-key.pem"
        for number, blob in enumerate(pair.cert_chain_pems):
            blob.write_to_path(cert, append=number > 0)
        pair.private_key_pem.write_to_path(key)
        Path(key).chmod(0o600)
        return cert, key

    def of_server(self, *kinds: str) -> list[str]:
        cert, key = self.server
        flags = {
            "TLS": [f"--tls_cert={cert}", f"--tls_key={key}"],
            "certificate": [f"--tls_ca={self.ca}"],
            "token": [f"--client_token_file={self.token}"],
        }
        return [flag for kind in kinds for flag in flags[kind]]

    def of_client(self, *kinds: str) -> list[str]:
        cert, key = self.client
        flags = {
            "TLS": [f"--job_server_ca={self.ca}"],
            "certificate": [f"--job_server_cert={cert}", f"--job_server_key={key}"],
            "token": [f"--job_server_token_file={self.token}"],
        }
        return [flag for kind in kinds for flag in flags[kind]]


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"))


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("strangers"))


@contextmanager
def server_with(*flags: str) -> Iterator[tuple[JobApi, Gate]]:
    config = parse_server_options(["--job_port=0", "--artifact_port=0", *flags])
    with served(config) as (jobs, gate):
        api = JobApi(config, jobs)
        try:
            yield api, gate
        finally:
            api.stop()


def submit(endpoint: str, *flags: str, file: Path | None = None) -> Any:
    """Submit a pipeline, which depends on a file; return the result."""
    pipeline = request().pipeline
    if file is not None:
        (environment,) = pipeline.components.environments.values()
        environment.dependencies.append(artifact("a.txt", str(file)))
    flags = (f"--job_endpoint={endpoint}", "--job_server_timeout=60", *flags)
    return SparkPortableRunner().run_portable_pipeline(pipeline, PipelineOptions([*flags]))


def on_localhost(url: str) -> str:
    return f"localhost:{url.rpartition(':')[2]}"


@pytest.mark.parametrize(
    "kinds",
    [
        (),
        ("token",),
        ("TLS",),
        ("TLS", "token"),
        ("TLS", "certificate"),
        ("TLS", "certificate", "token"),
    ],
    ids=" and ".join,
)
def test_who_shows_what_is_wanted_runs_pipelines(
    kinds: tuple[str, ...], papers: Papers, tmp_path: Path
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("content")
    folder = f"--artifacts_dir={tmp_path / 'staged'}"
    with server_with(*papers.of_server(*kinds), folder) as (api, gate):
        result = submit(on_localhost(api.url), *papers.of_client(*kinds), file=file)
        gate.wait_for(1)
        (staged,) = (each for each in (tmp_path / "staged").rglob("*") if each.is_file())
        assert staged.read_text() == "content"
        gate.let_through(1)
        with pytest.raises(RuntimeError, match=r"there is no Spark"):
            result.wait_until_finish()
        assert result.state == "FAILED"


def test_a_server_that_is_killed_is_named() -> None:
    with server_with() as (api, gate):
        endpoint = on_localhost(api.url)
        result = submit(endpoint)
        gate.wait_for(1)
        api.stop()  # as a process that is killed, it says nothing more of its jobs
        with pytest.raises(JobServerLostError, match=f"{endpoint} no longer answers"):
            result.wait_until_finish()


@pytest.mark.parametrize(
    "shown",
    [
        (),
        (("authorization", "Bearer another-token-of-that-length"),),
        (("authorization", TOKEN),),
        (("authorization", f"Bearer {TOKEN}"), ("authorization", f"Bearer {TOKEN}")),
    ],
    ids=["nothing", "another token", "no scheme", "twice"],
)
def test_without_the_token_nothing_is_served(shown: Any, papers: Papers) -> None:
    with server_with(*papers.of_server("token")) as (api, gate):
        for url in (api.url, api.artifact_url):
            with grpc.insecure_channel(url) as channel:
                for call in calls_on(channel):
                    with pytest.raises(grpc.RpcError) as raised:
                        list(call(shown))
                    assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
                    assert "--job_server_token_file" in raised.value.details()
                    assert ("does not know" in raised.value.details()) == bool(shown)
        assert gate.pools == []
        with grpc.insecure_channel(api.url) as channel:
            metadata = (("authorization", f"Bearer {TOKEN}"),)
            stub = beam_job_api_pb2_grpc.JobServiceStub(channel)
            assert not stub.GetJobs(beam_job_api_pb2.GetJobsRequest(), metadata=metadata).job_info


def calls_on(channel: Any) -> list[Callable[[Any], Any]]:
    """One call of each kind; a client that sends a stream waits before it says anything."""
    jobs = beam_job_api_pb2_grpc.JobServiceStub(channel)
    staging = beam_artifact_api_pb2_grpc.ArtifactStagingServiceStub(channel)
    asked = beam_job_api_pb2.GetJobStateRequest(job_id="none")
    wrapper = beam_artifact_api_pb2.ArtifactResponseWrapper(staging_token="none")

    def stage(metadata: Any) -> Any:
        calls: queue.Queue[Any] = queue.Queue()

        def answers() -> Iterator[Any]:
            calls.get().initial_metadata()  # comes with the status where the call is refused
            yield wrapper

        call = staging.ReverseArtifactRetrievalService(answers(), metadata=metadata)
        calls.put(call)
        return call

    return [
        lambda shown: [jobs.Prepare(request(), metadata=shown)],
        lambda shown: jobs.GetStateStream(asked, metadata=shown),
        stage,
    ]


def test_another_token(papers: Papers, tmp_path: Path) -> None:
    other = tmp_path / "token"
    other.write_text("another-token-of-that-length")
    other.chmod(0o600)
    with server_with(*papers.of_server("token")) as (api, gate):
        other.chmod(0o640 if os.geteuid() else 0o644)
        with pytest.raises(OptionsError, match=r"--job_server_token_file: .*chmod 6.0"):
            submit(api.url, f"--job_server_token_file={other}")
        other.chmod(0o600)
        with pytest.raises(OptionsError, match=r"--job_server_token_file: .* not accept .*token,"):
            submit(api.url, f"--job_server_token_file={other}")
        with pytest.raises(OptionsError, match=r"--job_server_token_file: .* demands a token"):
            submit(api.url)
        assert gate.pools == []


def test_a_server_with_a_certificate_of_another_ca(papers: Papers, strangers: Papers) -> None:
    with (
        server_with(*papers.of_server("TLS")) as (api, _),
        pytest.raises(OptionsError, match=r"--job_server_ca: the certificate of .* is refused: "),
    ):
        submit(on_localhost(api.url), *strangers.of_client("TLS"))


def test_a_server_of_another_name(papers: Papers) -> None:
    with (
        server_with(*papers.of_server("TLS"), "--job_host=127.0.0.2") as (api, _),
        pytest.raises(OptionsError, match=r"--job_server_ca: .* is refused: .*127\.0\.0\.2"),
    ):
        submit(api.url, *papers.of_client("TLS"))


def test_a_server_without_tls(papers: Papers) -> None:
    with (
        server_with() as (api, _),
        pytest.raises(OptionsError, match=r"--job_server_ca: .* does not answer with TLS"),
    ):
        submit(api.url, *papers.of_client("TLS"))


@pytest.mark.parametrize(
    ("wants", "shows", "problem"),
    [
        ((), None, "--job_server_ca: the job server at .* uses TLS: name a PEM file"),
        (("certificate",), None, "--job_server_ca: the job server at .* uses TLS: name a PEM file"),
        (("certificate",), (), "--job_server_cert: .* demands a client certificate"),
        (("certificate",), ("certificate",), "--job_server_cert: .* refuses the certificate"),
    ],
    ids=["no TLS", "no TLS and no certificate", "no certificate", "a certificate of another CA"],
)
def test_a_client_that_is_not_let_in_says_why(
    wants: Any, shows: Any, problem: str, papers: Papers, strangers: Papers
) -> None:
    flags = [] if shows is None else [*papers.of_client("TLS"), *strangers.of_client(*shows)]
    with server_with(*papers.of_server("TLS", *wants)) as (api, gate):
        with pytest.raises(OptionsError, match=problem):
            submit(on_localhost(api.url), *flags)
        assert gate.pools == []


def test_a_server_that_is_not_up_yet_is_waited_for(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.ExitStack() as running, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        gates: list[Gate] = []

        def start(_seconds: float) -> None:
            """Stands for the time between two looks."""
            if not gates:
                assert "waited for" in caplog.text  # it is said before anybody waits
                free.close()
                _, gate = running.enter_context(server_with(f"--job_port={port}"))
                gates.append(gate)

        waits = functools.partial(reaching.wait_for_server, sleep=start)
        monkeypatch.setattr(submission, "wait_for_server", waits)
        submit(f"localhost:{port}")
        gates[0].wait_for(1)
        gates[0].let_through(1)
    waited, found = (each.getMessage() for each in caplog.records if each.name == reaching.__name__)
    assert waited.startswith(f"no job server answers at localhost:{port} (connection refused). ")
    assert f"python -m beam_spark_runner --job_port={port}" in waited
    assert found == f"the job server at localhost:{port} answers now"


class OtherService(grpc.GenericRpcHandler):  # type: ignore[misc]
    def service(self, details: Any) -> None:
        """Knows no call."""


def test_a_server_of_something_else() -> None:
    server = grpc.server(futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((OtherService(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with pytest.raises(OptionsError, match=r"--job_endpoint: .* is no Beam job server"):
            submit(f"127.0.0.1:{port}")
    finally:
        server.stop(None).wait()


def test_files_of_a_server_that_are_wrong(
    papers: Papers, strangers: Papers, tmp_path: Path
) -> None:
    cert, key = papers.server
    nothing, text = str(tmp_path / "nothing"), tmp_path / "text"
    text.write_text("short")
    text.chmod(0o600)
    open_key, open_token = tmp_path / "open-key", tmp_path / "open-token"
    open_key.write_bytes(Path(key).read_bytes())
    open_token.write_text(TOKEN)
    for each in (open_key, open_token):
        each.chmod(0o644)
    for flags, problem in [
        ((f"--tls_cert={nothing}", f"--tls_key={key}"), "--tls_cert: .*nothing cannot be read: No"),
        ((f"--tls_cert={cert}", f"--tls_key={nothing}"), "--tls_key: .*nothing cannot be read: No"),
        ((f"--tls_cert={cert}", f"--tls_key={strangers.server[1]}"), "--tls_cert: .*MISMATCH"),
        ((f"--tls_cert={text}", f"--tls_key={key}"), "--tls_cert: .*not a certificate and its key"),
        (
            (f"--tls_cert={cert}", f"--tls_key={key}", f"--tls_ca={text}"),
            "--tls_ca: .*text contains no certificate",
        ),
        ((f"--client_token_file={nothing}",), "--client_token_file: .*nothing cannot be read: No"),
        ((f"--tls_cert={cert}", f"--tls_key={open_key}"), "--tls_key: .*chmod 6.0 .*open-key"),
        ((f"--client_token_file={open_token}",), "--client_token_file: .*chmod 6.0 .*open-token"),
        ((f"--client_token_file={text}",), "--client_token_file: .* at least 16 printable"),
    ]:
        with pytest.raises(OptionsError, match=problem), server_with(*flags):
            pass
