"""Numbers and times as the page writes them."""

from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.observing.stream_line import duration_text

_UNITS = ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e5, " k"))


def count_text(number: float) -> str:
    """Write a number of elements in at most seven characters.

    Example:
        >>> [count_text(each) for each in (0, 12, 99_999, 123_456, 1_234_567, 9.87e9)]
        ['0', '12', '99,999', '123 k', '1.23 M', '9.87 G']
    """
    for unit, name in _UNITS:
        if number >= unit:
            scaled = number / (1e3 if name == " k" else unit)
            return f"{scaled:.3g}{name}" if scaled < 1_000 else f"{scaled:,.0f}{name}"
    return f"{number:,.0f}"


def rate_text(per_second: float | None) -> str:
    """Write elements per second.

    Example:
        >>> [rate_text(each) for each in (None, 0.0, 0.25, 12.4, 1250.4)]
        ['—', '0/s', '0.25/s', '12/s', '1,250/s']
    """
    if per_second is None:
        return "—"
    if 0 < per_second < 10:
        return f"{per_second:.2g}/s"
    return f"{count_text(per_second)}/s"


def bytes_text(size: float | None) -> str:
    """Write a size.

    Example:
        >>> [bytes_text(each) for each in (None, 12, 4_096, 5_000_000)]
        ['—', '12 B', '4.1 kB', '5 MB']
    """
    if size is None:
        return "—"
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return (
                f"{size / unit:.3g} {name}" if size / unit >= 100 else f"{size / unit:.2g} {name}"
            )
    return f"{size:.0f} B"


def seconds_text(seconds: float | None) -> str:
    """Write how long something took.

    Example:
        >>> [seconds_text(each) for each in (None, 0.0004, 0.25, 4.21, 75.0)]
        ['—', '0 ms', '250 ms', '4.2 s', '1 min 15 s']
    """
    if seconds is None:
        return "—"
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else duration_text(int(seconds))


def lag_text(watermark_us: int, now_us: int) -> str:
    """Write how far a watermark is behind.

    Example:
        >>> lag_text(7_000_000, 10_000_000), lag_text(MAX_US, 0), lag_text(MIN_US, 0)
        ('3 s behind', 'at the end', 'at the beginning')
    """
    if watermark_us >= MAX_US:
        return "at the end"
    if watermark_us <= MIN_US:
        return "at the beginning"
    return f"{duration_text(max(0, now_us - watermark_us) // 1_000_000)} behind"


def shortened_middle(text: str, width: int) -> str:
    """Cut a text that is too long in its middle, since the ends of names differ.

    Example:
        >>> shortened_middle("ReadFromText/Read/Process", 13), shortened_middle("Sum", 13)
        ('ReadFr…rocess', 'Sum')
    """
    if len(text) <= width:
        return text
    left = width // 2
    return f"{text[:left]}…{text[len(text) - (width - left - 1) :]}"
