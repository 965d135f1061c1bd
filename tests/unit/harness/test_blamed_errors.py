"""Errors for which no step is to blame, although they are raised while one runs."""

import pytest

from beam_spark_runner.core.errors import BundleFailedError, CheckpointStorageError, RunnerError
from beam_spark_runner.engine.stages.charging import charged_to
from beam_spark_runner.harness.failures import ChargedTo, failures_of
from beam_spark_runner.state.delta import CorruptDeltaError
from beam_spark_runner.state.stored_deltas import ShardStorageError


@pytest.mark.parametrize(
    "error",
    [
        ShardStorageError("/local/main-1-0", "No space left on device"),
        CheckpointStorageError("/checkpoints", "it is not mounted"),
        CorruptDeltaError("main-1-0", "there is no such file"),
    ],
)
def test_storage_that_fails_is_not_the_fault_of_a_step(error: RunnerError) -> None:
    with (
        pytest.raises(type(error)) as raised,
        charged_to("Stage"),
        failures_of("Stage"),
        ChargedTo("Count users"),
    ):
        raise error
    assert raised.value is error


def test_other_errors_of_the_runner_are_assigned_to_the_step() -> None:
    with (
        pytest.raises(BundleFailedError, match="no more") as raised,
        failures_of("Stage"),
        ChargedTo("Count users"),
    ):
        raise RunnerError("no more")
    assert raised.value.step == "Count users"
