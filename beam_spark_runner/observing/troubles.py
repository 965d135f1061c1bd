"""What goes wrong while a job runs, and what the job survives: its storage, its executors."""

from dataclasses import dataclass, replace
from enum import Enum


class TroubleKind(Enum):
    """What goes wrong."""

    STORAGE = "storage"  # what a job commits to cannot be read or written, and is waited for
    REPEATED = "repeated"  # Spark jobs run again


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Something that went wrong. Unix times are in seconds.

    Attributes:
        kind: What it is.
        text: What is wrong, for people: of the last time.
        since_s: When it began.
        at_s: When it was noticed last.
    """

    kind: TroubleKind
    text: str
    since_s: float
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LostExecutor:
    """An executor that has died, or cannot be reached.

    Attributes:
        executor: Spark's id of it.
        at_s: When Spark has noticed, Unix time.
        reason: What Spark knows of the reason. "": nothing.
    """

    executor: str
    at_s: float
    reason: str


class Troubles:
    """The troubles of one job, of each kind the last one. Threads: one writes, any may read.

    Example:
        >>> troubles = Troubles()
        >>> troubles.note(TroubleKind.STORAGE, "no disk", 10.0)
        >>> troubles.note(TroubleKind.STORAGE, "still no disk", 12.0)
        >>> [(each.text, each.since_s, each.at_s) for each in troubles.latest()]
        [('still no disk', 10.0, 12.0)]
        >>> troubles.end(TroubleKind.STORAGE)
        >>> troubles.latest()
        ()
    """

    def __init__(self) -> None:
        self._by_kind: dict[TroubleKind, Trouble] = {}

    def note(self, kind: TroubleKind, text: str, now_s: float) -> None:
        """Note that something goes wrong, perhaps not for the first time."""
        previous = self._by_kind.get(kind)
        if previous is None:
            self._by_kind[kind] = Trouble(kind=kind, text=text, since_s=now_s, at_s=now_s)
        else:
            self._by_kind[kind] = replace(previous, text=text, at_s=now_s)

    def end(self, kind: TroubleKind) -> None:
        """Note that it goes well again."""
        self._by_kind.pop(kind, None)

    def latest(self) -> tuple[Trouble, ...]:
        """Return the troubles that have not ended."""
        return tuple(self._by_kind.copy().values())


_ON_PURPOSE = ("killed by driver", "decommission", "idle")


def is_loss(reason: str) -> bool:
    """Whether an executor that Spark has removed for a reason was lost, and not released.

    Example:
        >>> is_loss("Command exited with code 137")
        True
        >>> is_loss("Executor killed by driver."), is_loss("Executor decommission")
        (False, False)
    """
    return not any(words in reason.lower() for words in _ON_PURPOSE)
