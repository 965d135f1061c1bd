"""When partitions are spread over executors that have joined."""

import pytest

from beam_spark_runner.scheduling.anchoring import should_spread


@pytest.mark.parametrize(
    ("partitions", "slots", "anchored", "before", "now", "spreads"),
    [
        pytest.param(6, 6, "ab", "ab", "ab", False, id="nothing has changed"),
        pytest.param(6, 3, "ab", "a", "a", False, id="one is lost, and none has joined"),
        pytest.param(6, 6, "ab", "a", "ac", False, id="one has just joined"),
        pytest.param(6, 6, "ab", "ac", "ac", True, id="one has replaced another one"),
        pytest.param(6, 6, "ab", "abc", "ac", False, id="they still come and go"),
        pytest.param(8, 4, "", "ab", "ab", True, id="none was up at first"),
        pytest.param(6, 9, "ab", "abc", "abc", False, id="those before have a slot for each task"),
        pytest.param(7, 9, "ab", "abc", "abc", True, id="they have one too few"),
        pytest.param(64, 12, "a", "abc", "abc", True, id="the cluster grows on demand"),
        pytest.param(6, 9, "ab", "acd", "acd", True, id="one is lost, two have joined"),
    ],
)
def test_partitions_spread_if_new_executors_would_be_idle(
    partitions: int, slots: int, anchored: str, before: str, now: str, spreads: bool
) -> None:
    assert should_spread(partitions, slots, {*anchored}, {*before}, {*now}) is spreads
