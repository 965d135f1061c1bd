"""Which of several servers with one ``--jobs_dir`` may run its jobs: the one that started last."""

import re

from beam_spark_runner.recovery.commit import DeletingStorage
from beam_spark_runner.recovery.manifest import FencedError

_NAME = re.compile(r"(\d{12})\.server")


class ServerFence:
    """The claim of one server, which ends those of earlier servers. Threads: any.

    Args:
        storage: The folder.
    """

    def __init__(self, storage: DeletingStorage) -> None:
        self._storage = storage
        self._number = 0

    def claim(self) -> None:
        """Claim the folder.

        Raises:
            CheckpointStorageError: The folder cannot be read or written.
        """
        storage = self._storage
        self._number = self._highest() + 1
        while not storage.create(_name_of(self._number), b""):
            self._number += 1
        storage.delete([_name_of(number) for number in self._numbers() if number < self._number])

    def check(self) -> None:
        """Check that no later server has claimed the folder.

        Raises:
            FencedError: One has.
            CheckpointStorageError: The folder cannot be read.
        """
        if (newer := self._highest()) != self._number:
            raise FencedError(self._number, newer)

    def _highest(self) -> int:
        return max(self._numbers(), default=0)

    def _numbers(self) -> list[int]:
        matches = map(_NAME.fullmatch, self._storage.names())
        return [int(match[1]) for match in matches if match is not None]


def _name_of(number: int) -> str:
    return f"{number:012d}.server"
