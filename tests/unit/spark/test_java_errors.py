"""Errors of Java whose JVM has ended have a text."""

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from beam_spark_runner.spark.driver.spark_errors import machines_were_lost, reason_of
from beam_spark_runner.spark.java_errors import text_of_error


def java_error(answer: Any) -> Py4JJavaError:
    def send_command(command: str) -> str:
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    client = SimpleNamespace(send_command=send_command)
    java = SimpleNamespace(
        _gateway_client=client, _target_id="o1", toString=lambda: send_command("toString")
    )
    return Py4JJavaError("An error occurred while calling o1.collect", java)


@pytest.mark.parametrize(
    "error", [ConnectionRefusedError(111, "refused"), Py4JNetworkError("gone"), Py4JError("gone")]
)
def test_a_java_error_without_its_jvm_has_a_text(error: Exception) -> None:
    raised = java_error(error)

    assert text_of_error(raised) == (
        "An error occurred while calling o1.collect: Spark's JVM has ended"
    )
    assert "Spark's JVM has ended" in reason_of(raised)


def test_a_java_error_has_the_text_of_its_jvm() -> None:
    assert text_of_error(java_error("ysjava.lang.IllegalStateException: no")) == (
        "An error occurred while calling o1.collect: java.lang.IllegalStateException: no"
    )


def test_other_errors_have_their_own() -> None:
    assert text_of_error(ValueError("wrong")) == "wrong"


def test_machines_were_not_lost_with_the_jvm() -> None:
    assert not machines_were_lost(java_error(ConnectionRefusedError(111, "refused")))
