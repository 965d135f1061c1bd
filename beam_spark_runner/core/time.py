"""Event time, in microseconds, as in Beam's Python SDK."""

MIN_US = -9_223_372_036_854_775_000
"""The beginning of time, before all elements: ``MIN_TIMESTAMP`` of Beam."""
MAX_US = 9_223_372_036_854_775_000
"""The end of time, where a watermark never advances any more: ``MAX_TIMESTAMP`` of Beam."""


def whole_milliseconds(timestamp_us: int) -> int:
    """Round a timestamp to milliseconds, as Beam's encoding of windowed values does.

    On other runners, the output of a grouping has been encoded, so that a window that
    ends at 4 s yields 3.999 s, not 3.999999 s as in the SDK's memory.

    Source: WindowedValueCoderImpl.encode_to_stream, which rounds towards zero.
    """
    whole = abs(timestamp_us) // 1000 * 1000
    return whole if timestamp_us > 0 else -whole
