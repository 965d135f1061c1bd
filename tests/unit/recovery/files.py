"""Storage in memory."""

import io
from collections.abc import Iterable, Sequence
from typing import BinaryIO


class Files:
    """See ``CopyingStorage``.

    Attributes:
        files: their contents.
        made_durable: the names of other files, with each that was created.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.made_durable: list[set[str]] = []

    def names(self) -> Sequence[str]:
        return list(self.files)

    def read(self, name: str) -> bytes:
        return self.files[name]

    def create(self, name: str, data: bytes, after: Iterable[str] = ()) -> bool:
        self.made_durable.append({*after})
        if name in self.files:
            return False
        self.files[name] = data
        return True

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self.files.pop(name, None)

    def open(self, name: str) -> BinaryIO | None:
        return io.BytesIO(self.files[name]) if name in self.files else None

    def put(self, name: str, content: BinaryIO) -> None:
        self.files[name] = content.read()
