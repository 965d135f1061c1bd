"""Event time, in microseconds, as in Beam's Python SDK."""

MIN_US = -9_223_372_036_854_775_000
"""The beginning of time, before all elements: ``MIN_TIMESTAMP`` of Beam."""
MAX_US = 9_223_372_036_854_775_000
"""The end of time, where a watermark never advances any more: ``MAX_TIMESTAMP`` of Beam."""

END_OF_GLOBAL_WINDOW_US = 9_223_371_950_454_775_000
"""The last timestamp of the global window, by the model's constant and in Java. No window ends
later. After it there are timestamps, too, up to ``MAX_US``."""
_IN_PYTHON_US = END_OF_GLOBAL_WINDOW_US - 1


def last_moment(max_timestamp_us: int) -> int:
    """Return the last timestamp of a window, from ``max_timestamp`` of Beam's Python class.

    That of the global window is a microsecond too early, so that the window would end at a
    watermark at which it still gets elements in Java.

    Source: proto ``GLOBAL_WINDOW_MAX_TIMESTAMP_MILLIS``.
    """
    if max_timestamp_us == _IN_PYTHON_US:
        return END_OF_GLOBAL_WINDOW_US
    return max_timestamp_us


def whole_milliseconds(timestamp_us: int) -> int:
    """Round a timestamp to milliseconds, as Beam's encoding of windowed values does.

    On other runners, the output of a grouping has been encoded, so that a window that
    ends at 4 s yields 3.999 s, not 3.999999 s as in the SDK's memory.

    Source: WindowedValueCoderImpl.encode_to_stream, which rounds towards zero.
    """
    whole = abs(timestamp_us) // 1000 * 1000
    return whole if timestamp_us > 0 else -whole
