from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.semantics.timers import Instant
from beam_spark_runner.semantics.watermarks import advance_of, output_us


def test_a_watermark_never_goes_back() -> None:
    assert advance_of(5_000, 7_000, 9) == (Instant(5_000, 9), Instant(7_000, 9))
    assert advance_of(5_000, MIN_US, 9) == (Instant(5_000, 9), Instant(5_000, 9))


def test_at_the_end_nothing_waits_for_a_clock() -> None:
    assert advance_of(5_000, MAX_US, 9) == (Instant(5_000, 9), Instant(MAX_US, MAX_US))


def test_what_is_sent_on_is_held() -> None:
    assert output_us(7_000, None, None) == 7_000
    assert output_us(7_000, 5_000, None) == 5_000
    assert output_us(7_000, 9_000, None) == 7_000
    assert output_us(MAX_US, None, None) == MAX_US
    assert output_us(MIN_US, None, None) == MIN_US


def test_what_is_due_and_has_not_fired_is_not_passed() -> None:
    assert output_us(7_000, None, 6_000) == 5_000
    assert output_us(7_000, 4_000, 6_000) == 4_000


def test_elements_have_whole_milliseconds_and_so_have_watermarks() -> None:
    """The last moment of a window is 999 microseconds after the timestamp of its panes."""
    assert output_us(9_000_000, 5_178_999, None) == 5_178_000
    assert output_us(9_000_000, None, 5_179_000) == 5_178_000
    assert output_us(5_178_999, None, None) == 5_178_000
