"""Which sources have held the watermark for long."""

from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.scheduling.standing import PATIENCE_S, StandingWatermarks

A, B = TransformId("A"), TransformId("B")


def test_a_source_that_stands_for_a_minute_is_named_once() -> None:
    standing = StandingWatermarks()
    assert standing.after_epoch({A: 5, B: 5}, 100.0) == []
    assert standing.after_epoch({A: 5, B: 6}, 100.0 + PATIENCE_S - 1) == []
    assert standing.after_epoch({A: 5, B: 6}, 100.0 + PATIENCE_S) == [A]
    assert standing.after_epoch({A: 5, B: 6}, 100.0 + 3 * PATIENCE_S) == [B]
    assert standing.after_epoch({A: 5, B: 6}, 100.0 + 9 * PATIENCE_S) == []


def test_a_hold_that_moves_or_goes_begins_anew() -> None:
    standing = StandingWatermarks()
    standing.after_epoch({A: 5}, 0.0)
    standing.after_epoch({A: 7}, PATIENCE_S)
    assert standing.after_epoch({}, 2 * PATIENCE_S - 1) == []
    standing.after_epoch({A: 7}, 2 * PATIENCE_S)
    assert standing.after_epoch({A: 7}, 3 * PATIENCE_S - 1) == []
    assert standing.after_epoch({A: 7}, 3 * PATIENCE_S) == [A]


def test_an_epoch_that_comes_late_does_not_say_that_a_hold_stood() -> None:
    """Nothing was due meanwhile, and then the hold has moved."""
    standing = StandingWatermarks()
    standing.after_epoch({A: 5}, 0.0)
    assert standing.after_epoch({A: 9}, 60 * PATIENCE_S) == []
