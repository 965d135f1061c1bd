"""Notices values that do not change for long while epochs run, such as a held watermark."""

from collections.abc import Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar

PATIENCE_S = 60.0

_Key = TypeVar("_Key", bound=Hashable)


class _Since(NamedTuple):
    value: Hashable
    since_s: float
    is_named: bool = False


class UnchangedValues(Generic[_Key]):
    """Follows values by key. A key is returned once for each value that stands.

    After its value has changed, it is returned again only if the new one stands for twice as long,
    because some sources deliver in bursts.

    Example:
        >>> unchanged = UnchangedValues()
        >>> unchanged.after_epoch({"Read": 5}, 0.0), unchanged.after_epoch({"Read": 5}, 60.0)
        ([], [('Read', 60.0)])
    """

    def __init__(self) -> None:
        self._entries: dict[_Key, _Since] = {}
        self._patience_s: dict[_Key, float] = {}

    def after_epoch(
        self, values: Mapping[_Key, Hashable], now_s: float
    ) -> list[tuple[_Key, float]]:
        """Return the keys to warn of now, and for how many seconds the value of each has stood.

        Args:
            values: The values after the epoch, by key; a missing key has no value.
            now_s: The time of a monotonic clock.
        """
        keys = []
        entries: dict[_Key, _Since] = {}
        for key, value in values.items():
            entry = self._entries.get(key)
            if entry is None or entry.value != value:
                entry = _Since(value, now_s)
            patience_s = self._patience_s.get(key, PATIENCE_S)
            if not entry.is_named and now_s - entry.since_s >= patience_s:
                keys.append((key, now_s - entry.since_s))
                self._patience_s[key] = 2 * patience_s
                entry = entry._replace(is_named=True)
            entries[key] = entry
        self._entries = entries
        return keys
