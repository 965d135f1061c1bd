"""The command line of the job server."""

import pytest

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.options.metrics_address import MetricsAddress
from beam_spark_runner.options.server_options import ServerConfig, parse_server_options


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert parse_server_options([]) == ServerConfig(class_archive="/cache/beam-spark-runner")


def test_all_options() -> None:
    given = parse_server_options(
        [
            *("--job_host=::1", "--job_port=0", "--artifact_port=7", "--artifacts_dir=/a"),
            *("--max_artifact_bytes=8", "--max_concurrent_jobs=3", "--spark_master_url=local[2]"),
            *("--max_waiting_jobs=5", "--advertised_host=jobs.example.org"),
            "--prepare_timeout=9",
            *("--metrics_port=0", "--metrics_host=::1"),
            *("--spark_conf", "spark.a=b", "--spark_conf=spark.c=d", "--temp_location=/t"),
            *("--environment_config={}", "--spark_class_archive=off", "--java_class_path=/j/*"),
            *("--job_event_store_write_buffer_size=64k", "--job_event_store_flush_interval=0.5"),
        ]
    )
    assert given == ServerConfig(
        job_host="::1",
        advertised_host="jobs.example.org",
        job_port=0,
        artifact_port=7,
        artifacts_dir="/a",
        max_artifact_bytes=8,
        max_concurrent_jobs=3,
        max_waiting_jobs=5,
        prepare_timeout_s=9,
        spark_master_url="local[2]",
        spark_conf=(("spark.a", "b"), ("spark.c", "d")),
        shared_storage="/t",
        java_class_path="/j/*",
        environment_overrides="{}",
        event_buffer_bytes=65_536,
        event_flush_s=0.5,
        metrics=MetricsAddress(0, "::1"),
    )


@pytest.mark.parametrize(
    ("flag", "option"),
    [
        ("--job_port=65536", "job_port"),
        ("--artifact_port=-1", "artifact_port"),
        ("--max_concurrent_jobs=-1", "max_concurrent_jobs"),
        ("--max_artifact_bytes=-1", "max_artifact_bytes"),
        ("--max_waiting_jobs=0", "max_waiting_jobs"),
        ("--prepare_timeout=0", "prepare_timeout"),
        ("--job_event_store_write_buffer_size=0", "job_event_store_write_buffer_size"),
        ("--job_event_store_write_buffer_size=much", "job_event_store_write_buffer_size"),
        ("--job_event_store_flush_interval=-1", "job_event_store_flush_interval"),
        ("--job_event_store_flush_interval=nan", "job_event_store_flush_interval"),
        ("--metrics_port=65536", "metrics_port"),
        ("--metrics_host=0.0.0.0", "metrics_host"),
        ("--spark_master_url=nowhere", "spark_master_url"),
        ("--spark_conf=a", "spark_conf"),
        ("--advertised_host=localhost:8098", "advertised_host"),
        ("--advertised_host=http://localhost", "advertised_host"),
    ],
)
def test_wrong_options_are_named(flag: str, option: str) -> None:
    with pytest.raises(OptionsError, match=f"--{option}: "):
        parse_server_options([flag])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
def test_other_machines_are_let_in_only_on_request(host: str) -> None:
    with pytest.raises(OptionsError, match=r"--job_host: .*--insecure"):
        parse_server_options([f"--job_host={host}"])
    assert parse_server_options([f"--job_host={host}", "--insecure"]).job_host == host


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "::1"])
def test_this_machine_is_let_in(host: str) -> None:
    assert parse_server_options([f"--job_host={host}"]).job_host == host


@pytest.mark.parametrize(
    ("given", "host"), [("::1", "::1"), ("[::1]", "::1"), ("a.b", "a.b"), ("", None)]
)
def test_what_is_advertised(given: str, host: str | None) -> None:
    assert parse_server_options([f"--advertised_host={given}"]).advertised_host == host
