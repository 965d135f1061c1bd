"""The parts of a progress line: how they are written, and which of them fit."""

from collections.abc import Sequence

SEPARATOR = " · "
_BAR = 10  # its width in characters
_IN_ASCII = str.maketrans({"·": "-", "█": "#", "░": ".", "▕": "[", "▏": "]", "…": "~"})


def fit(parts: Sequence[str], width: int) -> str:
    """Join parts, without those at the end that do not fit; the first one always stays.

    A second part that is too long is cut, since it says what happens.

    Example:
        >>> fit(["0:03", "starting Spark", "more"], 23)
        '0:03 · starting Spark'
        >>> fit(["0:03", "starting Spark"], 15)
        '0:03 · startin…'
        >>> fit(["0:03", "starting Spark"], 9)
        '0:03'
    """
    for count in range(len(parts), 1, -1):
        text = SEPARATOR.join(parts[:count])
        if len(text) <= width:
            return text
    first, *others = parts
    room = width - len(first) - len(SEPARATOR)
    if not others or room < 3:
        return first
    return f"{first}{SEPARATOR}{shorten(others[0], room)}"


def shorten(text: str, width: int) -> str:
    """Cut a text that is too long.

    Example:
        >>> shorten("WriteToText", 11), shorten("WriteToText", 6)
        ('WriteToText', 'Write…')
    """
    return text if len(text) <= width else f"{text[: width - 1]}…"


def in_ascii(text: str) -> str:
    """Write a line for a terminal that shows no other characters.

    Example:
        >>> in_ascii(f"1:05 · {bar(0.68)}")
        '1:05 - [######....] 68%'
    """
    return text.translate(_IN_ASCII).encode("ascii", "replace").decode()


def time_text(seconds: float) -> str:
    """Format a time as a clock shows it.

    Example:
        >>> time_text(3.9), time_text(65), time_text(3725)
        ('0:03', '1:05', '1:02:05')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def bar(fraction: float) -> str:
    """Draw a fraction, from 0 to 1; only what is complete is full.

    Example:
        >>> bar(0.68), bar(1.0)
        ('▕██████░░░░▏ 68%', '▕██████████▏ 100%')
    """
    full = int(fraction * _BAR)
    return f"▕{'█' * full}{'░' * (_BAR - full)}▏ {int(fraction * 100)}%"


def count_text(number: int, noun: str) -> str:
    """Write a number of things.

    Example:
        >>> count_text(1, "file"), count_text(1200, "file")
        ('1 file', '1,200 files')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
