import itertools

import pytest

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.scheduling.test_stream_events import (
    AdvanceClock,
    AdvanceWatermark,
    End,
    Event,
    Played,
    not_played,
)


def test_watermarks_never_go_back_and_end_with_the_stream() -> None:
    events: tuple[Event, ...] = (
        AdvanceWatermark("a", 7),
        AdvanceWatermark("a", 3),
        AdvanceWatermark("b", 1),
        End(),
    )
    played = list(itertools.accumulate(events, Played.after, initial=not_played(("a", "b"))))
    assert [dict(each.watermarks_us) for each in played] == [
        {"a": MIN_US, "b": MIN_US},
        {"a": 7, "b": MIN_US},
        {"a": 7, "b": MIN_US},
        {"a": 7, "b": 1},
        {"a": MAX_US, "b": MAX_US},
    ]
    assert [each.events for each in played] == [0, 1, 2, 3, 4]
    assert [each.has_ended for each in played] == [False] * 4 + [True]


def test_nothing_happens_after_the_end() -> None:
    with pytest.raises(InvariantError, match="after the end"):
        not_played("a").after(End()).after(AdvanceClock(1))
