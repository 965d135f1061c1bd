"""Beam's cache of encoded classes, which must not outlive a job.

Beam keeps the bytes of each class for as long as the process lasts, whatever has made them:
cloudpickle, or dill for ``--update_compatibility_version`` up to 2.67. A Python worker outlives
jobs. What one job has kept would be the key's bytes in the next one, in this worker alone: one
key would be several.

Source: ``apache_beam.coders.coder_impl``, ``_pickled_types`` and ``_unpickled_types``.
"""

import ctypes
from typing import Any

from apache_beam.coders import coder_impl

_CAPSULE = b"PyObject *"


class CodedTypes:
    """What Beam keeps, of one job at a time. Threads: one at a time."""

    def __init__(self) -> None:
        self._job_id: str | None = None

    def serve(self, job_id: str) -> None:
        """Forget what other jobs have left."""
        if self._job_id != job_id:
            self._job_id = job_id
            for kept in (_variable("_pickled_types"), _variable("_unpickled_types")):
                kept.clear()


coded_types = CodedTypes()


def _variable(name: str) -> dict[Any, Any]:
    """Return a variable of the module, which shows it to other C code only when it is compiled."""
    capsule = getattr(coder_impl, "__pyx_capi__", {}).get(name)
    if capsule is None:
        found: dict[Any, Any] = getattr(coder_impl, name)
        return found
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    found = ctypes.cast(pointer(capsule, _CAPSULE), ctypes.POINTER(ctypes.py_object)).contents.value
    return found
