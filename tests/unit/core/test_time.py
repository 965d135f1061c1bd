import pytest
from apache_beam.coders import BytesCoder, WindowedValueCoder
from apache_beam.transforms.window import GlobalWindow, GlobalWindows
from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import create
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.core.time import whole_milliseconds

CODER = WindowedValueCoder(BytesCoder(), GlobalWindows().get_window_coder())


@given(st.integers(MIN_TIMESTAMP.micros, MAX_TIMESTAMP.micros))
def test_timestamps_are_those_that_beams_wire_carries(timestamp_us: int) -> None:
    sent = create(b"", timestamp_us, (GlobalWindow(),))
    assert whole_milliseconds(timestamp_us) == CODER.decode(CODER.encode(sent)).timestamp_micros


@pytest.mark.parametrize("end", [MIN_TIMESTAMP, MAX_TIMESTAMP])
def test_the_ends_of_time_stay(end: Timestamp) -> None:
    assert whole_milliseconds(end.micros) == end.micros
