"""The port at which metrics are served."""

import socket
import urllib.error
import urllib.request

import pytest

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.job.export.health import Health
from beam_spark_runner.job.export.metrics_port import MetricsPort
from beam_spark_runner.options.metrics_address import MetricsAddress
from tests.unit.job.export.test_prometheus import STATUS, job


def test_it_serves_until_it_is_closed() -> None:
    port = MetricsPort(MetricsAddress(0), lambda: [job("1", STATUS)])
    try:
        with urllib.request.urlopen(port.url, timeout=30) as answer:
            text = answer.read().decode()
    finally:
        port.close()
    assert 'beam_spark_epochs_total{job_id="1",job_name="orders"} 17.0' in text
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(port.url, timeout=30)


def test_only_this_machine_reaches_it() -> None:
    port = MetricsPort(MetricsAddress(0), lambda: [])
    port.close()
    assert port.url.startswith("http://127.0.0.1:")


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        number = other.getsockname()[1]
        with pytest.raises(
            OptionsError, match=rf"--metrics_port: cannot listen at 127\.0\.0\.1:{number}"
        ):
            MetricsPort(MetricsAddress(number), lambda: [])


def test_a_host_of_another_machine() -> None:
    with pytest.raises(OptionsError, match=r"--metrics_port: cannot listen at 192\.0\.2\.1:0"):
        MetricsPort(MetricsAddress(0, "192.0.2.1"), lambda: [])


def test_probes_say_why() -> None:
    health = Health("Spark is starting")
    port = MetricsPort(MetricsAddress(0), lambda: [], health)
    root = port.url.removesuffix("/metrics")
    told: list[bool] = []
    health.follow(told.append)

    def ask(path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"{root}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    try:
        assert ask("/healthz") == (200, "ok\n")
        assert ask("/readyz") == (503, "Spark is starting\n")
        health.note_ready()
        assert ask("/readyz") == (200, "ok\n")
        health.note_loss("the JVM has ended")
        health.note_ready()
        assert ask("/healthz") == ask("/readyz") == (503, "the JVM has ended\n")
    finally:
        port.close()
    assert told == [False, True, False, False]
