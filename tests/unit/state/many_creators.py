"""Many threads that create one file."""

import threading
from typing import Protocol


class Creating(Protocol):
    def create(self, name: str, data: bytes) -> bool: ...


def created_by_many(folder: Creating, name: str) -> list[bytes]:
    """Let eight threads create a file, each with a content; return those that were created."""
    created = list[bytes]()

    def create(content: bytes) -> None:
        if folder.create(name, content):
            created.append(content)

    threads = [threading.Thread(target=create, args=(b"%d" % each,)) for each in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return created
