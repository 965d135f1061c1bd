"""The texts in a JVM's class files: what a version of Spark can say.

Source: The Java Virtual Machine Specification, chapter 4.4, "The Constant Pool".
"""

import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

_UTF8, _STRING = 1, 8
_BYTES_OF_CONSTANT = {
    **dict.fromkeys((7, 8, 16, 19, 20), 2),
    15: 3,
    **dict.fromkeys((3, 4, 9, 10, 11, 12, 17, 18), 4),
    **dict.fromkeys((5, 6), 8),
}


def string_constants(class_file: bytes) -> list[str]:
    """Return the string constants of a class, patterns of concatenations among them.

    A pattern has the character U+0001 where a value goes.

    Raises:
        ValueError: this is no class file, or one with a constant of an unknown kind.
    """
    magic, count = struct.unpack_from(">I4xH", class_file)
    if magic != 0xCAFEBABE:
        raise ValueError("this is no class file")
    texts: dict[int, str] = {}
    strings: list[int] = []
    place, index = 10, 1
    while index < count:
        tag = class_file[place]
        place += 1
        if tag == _UTF8:
            (size,) = struct.unpack_from(">H", class_file, place)
            coded = class_file[place + 2 : place + 2 + size]
            texts[index] = coded.decode(errors="surrogateescape")
            place += 2 + size
        elif tag in _BYTES_OF_CONSTANT:
            if tag == _STRING:
                strings += struct.unpack_from(">H", class_file, place)
            place += _BYTES_OF_CONSTANT[tag]
        else:
            raise ValueError(f"a constant of kind {tag}")
        index += 2 if tag in (5, 6) else 1  # a long or a double takes two places
    return [texts[string] for string in strings]


def constants_of(jar: Path, name: str) -> Iterator[str]:
    """Yield the string constants of a class and of those inside it.

    Args:
        jar: where it is.
        name: of the class, with its package, such as ``org.apache.spark.SparkContext``.
    """
    path = name.replace(".", "/")
    with zipfile.ZipFile(jar) as archive:
        for entry in archive.namelist():
            if entry == f"{path}.class" or entry.startswith(f"{path}$"):
                yield from string_constants(archive.read(entry))
