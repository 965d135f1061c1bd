"""Splittable DoFns on a standalone cluster: executors die in the middle of their chains."""

import logging
from pathlib import Path
from typing import Any

import pytest

from integration.pipelines import counters
from integration.restrictions import TakeSteps, steps
from integration.running import run

pytestmark = pytest.mark.cluster
ELEMENTS = {"long": 150, "short": 10}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("storage", ["executors", "shared storage"])
@pytest.mark.parametrize(
    ("fatal", "defers_every"),
    [
        pytest.param(3, 0, id="before the first split"),
        pytest.param(60, 0, id="in a round"),
        pytest.param(149, 0, id="at the end"),
        pytest.param(25, 10, id="in the middle of a chain of residuals"),
    ],
)
def test_every_step_counts_once(
    cluster_session: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    fatal: int,
    defers_every: int,
    storage: str,
) -> None:
    caplog.set_level(logging.INFO)
    marker = tmp_path / "killed"
    take = TakeSteps(str(marker), fatal, defers_every)
    arguments = [f"--temp_location={tmp_path}"] if storage == "shared storage" else []
    result = run(
        cluster_session,
        lambda p: steps(p, ELEMENTS, take),
        "--sdf_round_budget=0.5",
        "--parallelism=4",
        *arguments,
    )
    assert marker.exists()
    assert counters(result) == {"steps": 160, "names": 2}
    rounds = [text for text in caplog.messages if text.startswith("round ")]
    print(storage, rounds, [text for text in caplog.messages if "again" in text])
    assert rounds
