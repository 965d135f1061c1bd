"""Floods of log lines."""

from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.backchannel.log_rate_limiter import LogRateLimiter


def test_a_flood_is_cut_and_counted() -> None:
    valve = LogRateLimiter(0.0, per_second=10, at_once=100)
    passed = sum(valve.lets_through(0.001 * number) for number in range(1000))
    assert 100 <= passed <= 111
    assert valve.take_left_out() == 1000 - passed
    assert valve.take_left_out() == 0


def test_after_a_pause_lines_pass_again() -> None:
    valve = LogRateLimiter(0.0, per_second=10, at_once=5)
    assert [valve.lets_through(0.0) for _ in range(6)] == [True] * 5 + [False]
    assert valve.lets_through(0.1)
    assert not valve.lets_through(0.1)
    assert [valve.lets_through(60.0) for _ in range(6)] == [True] * 5 + [False]


@given(st.lists(st.floats(0, 10), max_size=300), st.integers(1, 50), st.integers(1, 20))
def test_every_line_passes_or_is_counted(
    pauses: list[float], per_second: int, at_once: int
) -> None:
    valve, now, passed = LogRateLimiter(0.0, per_second=per_second, at_once=at_once), 0.0, 0
    for pause in pauses:
        now += pause
        passed += valve.lets_through(now)
    assert passed + valve.take_left_out() == len(pauses)
    assert passed <= at_once + now * per_second + 1
