"""Event time, in microseconds, as Beam's Python SDK counts it."""

MIN_US = -9_223_372_036_854_775_000
"""Before all elements: ``MIN_TIMESTAMP`` of Beam."""
MAX_US = 9_223_372_036_854_775_000
"""A watermark that has come here never moves again: ``MAX_TIMESTAMP`` of Beam."""


def whole_milliseconds(timestamp_us: int) -> int:
    """Return a timestamp as it comes off Beam's wire, which carries milliseconds.

    What a grouping emits has crossed the wire on other runners, so that a window that
    ends at 4 s yields 3.999 s, and not 3.999999 s as in the SDK's memory.

    Source: WindowedValueCoderImpl.encode_to_stream, which rounds towards zero.
    """
    whole = abs(timestamp_us) // 1000 * 1000
    return whole if timestamp_us > 0 else -whole
