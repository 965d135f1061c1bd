"""What the stages of an undisturbed run have in common."""


class StageInMemory:
    """What a stage of one task remembers. Times that are due are found by looking at all of it."""

    def due(self) -> tuple[list[int], list[int]]:
        """Return event and processing times."""
        raise NotImplementedError

    def holds(self) -> list[int]:
        """Return the event times that the output must not pass."""
        raise NotImplementedError

    def is_empty(self) -> bool:
        """Whether nothing is left."""
        raise NotImplementedError
