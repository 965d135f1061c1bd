"""What each version of Spark can do: the only file that compares versions."""

import re
from typing import NamedTuple

from typing_extensions import override


class SparkVersion(NamedTuple):
    """A version of Spark."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> "SparkVersion":
        """Read a version. Vendors write versions such as ``3.5.0-amzn-1``."""
        match = re.match(r"(\d+)\.(\d+)", text)
        return cls(int(match[1]), int(match[2])) if match else cls(0, 0)

    @override
    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    @property
    def is_served(self) -> bool:
        """Whether this package runs on it."""
        return (3, 5) <= self < (5, 0)

    @property
    def oldest_java(self) -> int:
        """The oldest Java that runs it."""
        return 17 if self >= (4, 0) else 8

    @property
    def has_profiles_of_frames(self) -> bool:
        """Whether ``mapInArrow`` takes a resource profile."""
        return self >= SparkVersion(4, 0)

    @property
    def limits_batches_by_bytes(self) -> bool:
        """Whether the size of Arrow batches for Python can be limited, and not only their rows."""
        return self >= (4, 0)

    @property
    def stores_rows_for_connect(self) -> bool:
        """Whether executors can store rows for a client of Spark Connect."""
        return self >= (4, 0)

    @property
    def unites_in_place(self) -> bool:
        """Whether frames that are partitioned alike are united partition by partition."""
        return self >= (4, 1)
