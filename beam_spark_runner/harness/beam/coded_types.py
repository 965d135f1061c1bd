"""Beam's cache of encoded classes, which must not outlive a job.

Beam caches the pickled bytes of each class in the process, whichever library has made them:
cloudpickle, or dill for ``--update_compatibility_version`` up to 2.67. A Python worker outlives
jobs. If it reused the bytes of an earlier job in the encoding of keys, equal keys would have other
bytes in other workers, and would not be grouped together.

Source: ``apache_beam.coders.coder_impl``, ``_pickled_types`` and ``_unpickled_types``.
"""

import ctypes
from typing import Any

from apache_beam.coders import coder_impl

_CAPSULE = b"PyObject *"


class CodedTypes:
    """Limits Beam's cache to one job at a time. Threads: one at a time."""

    def __init__(self) -> None:
        self._job_id: str | None = None

    def serve(self, job_id: str) -> None:
        """Clear the cache if it has entries of another job."""
        if self._job_id != job_id:
            self._job_id = job_id
            for cache in (_variable("_pickled_types"), _variable("_unpickled_types")):
                cache.clear()


coded_types = CodedTypes()


def _variable(name: str) -> dict[Any, Any]:
    """Return a module variable of ``coder_impl``, which only C code can read if it is compiled."""
    capsule = getattr(coder_impl, "__pyx_capi__", {}).get(name)
    if capsule is None:
        variable: dict[Any, Any] = getattr(coder_impl, name)
        return variable
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    variable = ctypes.cast(
        pointer(capsule, _CAPSULE), ctypes.POINTER(ctypes.py_object)
    ).contents.value
    return variable
