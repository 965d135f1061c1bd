"""Notices what stays as it is for long while epochs run: a watermark that is held, say."""

from collections.abc import Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar

PATIENCE_S = 60.0

_Key = TypeVar("_Key", bound=Hashable)


class _Since(NamedTuple):
    value: Hashable
    since_s: float
    is_named: bool = False


class Standing(Generic[_Key]):
    """Follows some values. A key is named once for each value that stands.

    When its value has changed, it is named again only if the new one stands for twice as long: some
    sources come in waves.

    Example:
        >>> standing = Standing()
        >>> standing.after_epoch({"Read": 5}, 0.0), standing.after_epoch({"Read": 5}, 60.0)
        ([], [('Read', 60.0)])
    """

    def __init__(self) -> None:
        self._found: dict[_Key, _Since] = {}
        self._patience_s: dict[_Key, float] = {}

    def after_epoch(
        self, values: Mapping[_Key, Hashable], now_s: float
    ) -> list[tuple[_Key, float]]:
        """Return the keys that are to be named now, and for how many seconds each has stood.

        Args:
            values: after the epoch, of the keys that have one.
            now_s: monotonic.
        """
        named = []
        found: dict[_Key, _Since] = {}
        for key, value in values.items():
            before = self._found.get(key)
            if before is None or before.value != value:
                before = _Since(value, now_s)
            patience_s = self._patience_s.get(key, PATIENCE_S)
            if not before.is_named and now_s - before.since_s >= patience_s:
                named.append((key, now_s - before.since_s))
                self._patience_s[key] = 2 * patience_s
                before = before._replace(is_named=True)
            found[key] = before
        self._found = found
        return named
