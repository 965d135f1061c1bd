"""Streaming pipelines whose checkpoint lacks a file."""

from pathlib import Path
from typing import Any

import pytest

from beam_spark_runner.errors import CorruptDeltaError
from tests.harness.processes import wait_for
from tests.spark.endless import (
    noted,
    nothing_goes_on,  # noqa: F401  (a fixture)
    started,
    windows_and_timers,
)

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("nothing_goes_on")]


def test_a_delta_that_was_deleted_is_named(spark_session: Any, tmp_path: Path) -> None:
    seen, ended, checkpoints = (tmp_path / name for name in ("seen", "ended", "checkpoints"))
    for each in (seen, ended):
        each.mkdir()
    build, flag = windows_and_timers(seen, ended), f"--checkpoint_dir={checkpoints}"
    first = started(spark_session, build, flag)
    wait_for(lambda: len(noted(seen)) == 6)
    newest = max(checkpoints.glob("*.manifest"), default=None)
    wait_for(lambda: max(checkpoints.glob("*.manifest"), default=None) != newest)
    first.cancel()
    deltas = {each.name for each in checkpoints.glob("*.delta")}
    for name in deltas:
        (checkpoints / name).unlink()
    second = started(spark_session, build, flag, "--drain")  # which reads all state at once
    with pytest.raises(CorruptDeltaError, match="cannot be used: there is no such file") as raised:
        second.wait_until_finish()
    assert raised.value.name in deltas
