"""How long the start of an SDK harness may take."""

from typing import Any

import pytest
from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import EnvironmentStartError
from beam_spark_runner.harness.remote import sdk_harness
from beam_spark_runner.harness.remote.sdk_harness import ConnectedHarness
from beam_spark_runner.harness.remote.settings import HarnessSettings


class Clock:
    """Stands for the module ``time``."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


class Server:
    """Stands for the Fn API's."""

    url = "127.0.0.1:1"

    def add(self, connection: Any) -> None: ...
    def remove(self, connection: Any) -> None: ...


class Container:
    """One that never connects."""

    exit_code = None
    subject = "the container of image"
    tail = "its last lines"

    def stop(self) -> None: ...


def test_the_time_for_a_container_begins_when_its_image_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    looks: list[float] = []

    def pull(*_: Any, **__: Any) -> Container:
        clock.now_s += 500
        return Container()

    def look(_: float) -> bool:
        looks.append(clock.now_s)
        clock.now_s += 1
        return False

    monkeypatch.setattr(sdk_harness, "time", clock)
    monkeypatch.setattr(sdk_harness, "start_container", pull)
    payload = beam_runner_api_pb2.DockerPayload(container_image="image")
    environment = beam_runner_api_pb2.Environment(
        urn=urns.ENVIRONMENT_DOCKER, payload=payload.SerializeToString()
    )
    worker = ConnectedHarness(Server(), environment, HarnessSettings(job_id="job"))  # type: ignore[arg-type]
    monkeypatch.setattr(worker.connection.control.connected, "wait", look)
    with pytest.raises(EnvironmentStartError, match="did not connect within 3 s"):
        worker.start(3.0)
    assert looks == [500, 501, 502, 503]
