"""Messages that real SDKs have sent, in files that ``integration.record_messages`` writes.

A file is compressed frames. A frame is a kind, the number of a stage plus one, and a message, with
lengths and the number as varints.
"""

import lzma
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from beam_spark_runner.core.varint import coded_varint, read_varint

FOLDER = Path(__file__).parent / "corpus"
NO_STAGE = -1


class Recorded(NamedTuple):
    """One message.

    Attributes:
        kind: Which message it is, as ``Elements`` or ``PrepareJobRequest``.
        stage: The number of the stage that it is about, counted by the messages of the kind
            ``ProcessBundleDescriptor`` in the file; ``NO_STAGE``: of none.
        coded: The serialised message.
    """

    kind: str
    stage: int
    coded: bytes


def framed(message: Recorded) -> bytes:
    """Encode one message as a frame."""
    kind = message.kind.encode()
    return b"".join(
        (
            coded_varint(len(kind)),
            kind,
            coded_varint(message.stage + 1),
            coded_varint(len(message.coded)),
            message.coded,
        )
    )


def frames(coded: bytes) -> Iterator[Recorded]:
    """Decode frames."""
    position = 0
    while position < len(coded):
        length, position = read_varint(coded, position)
        kind = coded[position : position + length].decode()
        stage, position = read_varint(coded, position + length)
        length, position = read_varint(coded, position)
        yield Recorded(kind, stage - 1, coded[position : position + length])
        position += length


def write(sdk: str, messages: Iterable[Recorded], folder: Path = FOLDER) -> Path:
    """Write the messages of an SDK; return the path of their file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{sdk}.bin"
    path.write_bytes(lzma.compress(b"".join(map(framed, messages)), preset=9))
    return path


def read(sdk: str, folder: Path = FOLDER) -> list[Recorded]:
    """Read the messages of an SDK."""
    return list(frames(lzma.decompress((folder / f"{sdk}.bin").read_bytes())))


def sdks(folder: Path = FOLDER) -> list[str]:
    """Return the names of the SDKs that have been recorded."""
    return sorted(path.stem for path in folder.glob("*.bin"))
