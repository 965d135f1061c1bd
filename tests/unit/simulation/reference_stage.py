"""What the stages of an undisturbed run have in common."""

from abc import ABC, abstractmethod


class StageInMemory(ABC):
    """What a stage of one task remembers. Times that are due are found by looking at all of it."""

    @abstractmethod
    def due(self) -> tuple[list[int], list[int]]:
        """Return event and processing times."""

    @abstractmethod
    def holds(self) -> list[int]:
        """Return the event times that the output must not pass."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Whether nothing is left."""
