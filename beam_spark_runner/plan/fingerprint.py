"""A digest of a plan, which is the same in all processes."""

import dataclasses
import hashlib
from collections.abc import Mapping
from enum import Enum
from typing import Any

from beam_spark_runner.core.version import VERSION
from beam_spark_runner.plan.model import Plan


def fingerprint(plan: Plan) -> str:
    """Return 64 hexadecimal digits that are the same for equal plans only.

    They depend on the whole plan, and on this package's version, since another version may
    execute the same plan in another way. They do not depend on the order of mappings, on the
    process, or on its hash seed.
    """
    digest = hashlib.sha256(VERSION.encode())
    digest.update(_coded(plan))
    return digest.hexdigest()


def _coded(value: Any) -> bytes:
    """Encode a value, so that different values have different encodings."""
    match value:
        case None | bool() | int():
            return _item(b"a", repr(value).encode())
        case str():
            return _item(b"s", value.encode())
        case bytes():
            return _item(b"b", value)
        case Enum():
            return _item(b"e", f"{type(value).__name__}.{value.name}".encode())
        case tuple() | list():
            return _item(b"t", b"".join(map(_coded, value)))
        case Mapping():
            entries = sorted(_coded(key) + _coded(item) for key, item in value.items())
            return _item(b"m", b"".join(entries))
    if not dataclasses.is_dataclass(value):
        raise TypeError(f"{type(value).__qualname__} has no place in a plan")
    # The others, which do not count for equality either, are derived from these.
    fields = [getattr(value, field.name) for field in dataclasses.fields(value) if field.compare]
    return _item(b"d", type(value).__name__.encode() + b"\0" + b"".join(map(_coded, fields)))


def _item(kind: bytes, content: bytes) -> bytes:
    return kind + len(content).to_bytes(8, "big") + content
