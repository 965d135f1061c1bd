"""Numbers in texts of other processes."""

_MAX_DIGITS = 18  # of 63 bits; Python refuses texts of more than 4,300 digits


def decimal_in(text: str) -> int | None:
    """Return the number that a text consists of; None: it is no number, or one of over 18 digits.

    Example:
        "17" gives 17, "-1" and "x" give None.
    """
    return int(text) if text.isdecimal() and len(text) <= _MAX_DIGITS else None
