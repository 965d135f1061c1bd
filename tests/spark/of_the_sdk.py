"""What no Python worker can unpickle: only SDK harnesses know it."""

import os
import sys
from typing import Any


class OfTheSdk:
    """Cannot be unpickled in a Python worker."""

    def __reduce__(self) -> Any:
        return _load, (type(self), dict(self.__dict__))


def _load(kind: type, state: dict[str, Any]) -> Any:
    is_harness = "CONTROL_API_SERVICE_DESCRIPTOR" in os.environ
    if not is_harness and "daemon" in str(sys.modules["__main__"].__spec__):
        raise RuntimeError("a Python worker has unpickled what only an SDK knows")
    made: Any = object.__new__(kind)
    made.__dict__.update(state)
    return made
