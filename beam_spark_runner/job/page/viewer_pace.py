"""How often viewers load a page again: less often if there are many, so that jobs do not notice."""

_USUAL_S = 2
_MAX_S = 30
_LOADS_PER_SECOND = 5  # of all viewers together: a load takes one or two milliseconds
_FORGOTTEN_AFTER_S = 60.0
_MAX_VIEWERS = 1_000


class ViewerPace:
    """Counts the viewers of the last minute. Threads: one at a time.

    Example:
        >>> pace = ViewerPace()
        >>> for viewer in range(100):
        ...     pace.note(str(viewer), 7.0)
        >>> pace.every_s(), ViewerPace().every_s()
        (20, 2)
        >>> pace.note("one", 99.0)
        >>> pace.every_s()
        2
    """

    def __init__(self) -> None:
        self._seen_s: dict[str, float] = {}  # the latest last

    def note(self, viewer: str, now_s: float) -> None:
        """Note that a viewer loads a page.

        Args:
            viewer: What tells one browser from others.
            now_s: A monotonic clock.
        """
        self._seen_s.pop(viewer, None)
        self._seen_s[viewer] = now_s
        while len(self._seen_s) > _MAX_VIEWERS:
            del self._seen_s[next(iter(self._seen_s))]
        for other, seen_s in list(self._seen_s.items()):
            if now_s - seen_s <= _FORGOTTEN_AFTER_S:
                break
            del self._seen_s[other]

    def every_s(self) -> int:
        """Return after how many seconds each viewer is to load the page again."""
        return min(_MAX_S, max(_USUAL_S, len(self._seen_s) // _LOADS_PER_SECOND))
