"""Reads what Beam's picklers have written in a pipeline, without running any of it."""

import base64
import binascii
import bz2
import pickletools
import re
import zlib

from apache_beam.portability.api import beam_runner_api_pb2

# Base64 of what bz2 and zlib write at level 9. Bytes of the message around it may look like more.
_PICKLED = re.compile(rb"(?:QlpoOTFBWSZT|eN[o-r])[A-Za-z0-9+/]+={0,2}")
_OF_MODULES = {"GLOBAL", "INST"}  # opcodes with two names: of a module and in it


def words_of_pickles(pipeline: beam_runner_api_pb2.Pipeline) -> frozenset[str]:
    """Return all texts in the pickled code of a pipeline, with every name that the code uses."""
    words: set[str] = set()
    for text in set(_PICKLED.findall(pipeline.SerializeToString())):
        try:
            for opcode, value, _ in pickletools.genops(_decompressed(text)):
                if isinstance(value, str):
                    words.update(value.split() if opcode.name in _OF_MODULES else (value,))
        except (binascii.Error, OSError, EOFError, ValueError, zlib.error):
            continue  # it only looks like pickled code
    return frozenset(words)


def _decompressed(text: bytes) -> bytes:
    coded = base64.b64decode(text[: len(text) // 4 * 4])
    made_by = bz2.BZ2Decompressor() if text.startswith(b"Ql") else zlib.decompressobj()
    return made_by.decompress(coded)
