"""What stays as it is for long."""

from beam_spark_runner.observing.unchanged_values import PATIENCE_S, UnchangedValues


def test_what_stands_for_a_minute_is_named_once() -> None:
    unchanged: UnchangedValues[str] = UnchangedValues()
    assert unchanged.after_epoch({"A": 5, "B": 5}, 100.0) == []
    assert unchanged.after_epoch({"A": 5, "B": 6}, 100.0 + PATIENCE_S - 1) == []
    assert unchanged.after_epoch({"A": 5, "B": 6}, 100.0 + PATIENCE_S) == [("A", PATIENCE_S)]
    assert unchanged.after_epoch({"A": 5, "B": 6}, 100.0 + 3 * PATIENCE_S) == [
        ("B", 2 * PATIENCE_S + 1)
    ]
    assert unchanged.after_epoch({"A": 5, "B": 6}, 100.0 + 9 * PATIENCE_S) == []


def test_what_moves_or_goes_begins_again() -> None:
    unchanged: UnchangedValues[str] = UnchangedValues()
    unchanged.after_epoch({"A": 5}, 0.0)
    unchanged.after_epoch({"A": 7}, PATIENCE_S)
    assert unchanged.after_epoch({}, 2 * PATIENCE_S - 1) == []
    unchanged.after_epoch({"A": 7}, 2 * PATIENCE_S)
    assert unchanged.after_epoch({"A": 7}, 3 * PATIENCE_S - 1) == []
    assert unchanged.after_epoch({"A": 7}, 3 * PATIENCE_S) == [("A", PATIENCE_S)]


def test_it_is_named_again_once_it_has_moved_and_stands_for_twice_as_long() -> None:
    unchanged: UnchangedValues[str] = UnchangedValues()
    unchanged.after_epoch({"A": 5}, 0.0)
    assert unchanged.after_epoch({"A": 5}, PATIENCE_S) == [("A", PATIENCE_S)]
    unchanged.after_epoch({"A": 6}, 2 * PATIENCE_S)
    assert unchanged.after_epoch({"A": 6}, 4 * PATIENCE_S - 1) == []
    assert unchanged.after_epoch({"A": 6}, 4 * PATIENCE_S) == [("A", 2 * PATIENCE_S)]


def test_an_epoch_that_comes_late_does_not_say_that_anything_stood() -> None:
    """Nothing was due meanwhile, and then the value has changed."""
    unchanged: UnchangedValues[str] = UnchangedValues()
    unchanged.after_epoch({"A": 5}, 0.0)
    assert unchanged.after_epoch({"A": 9}, 60 * PATIENCE_S) == []
