"""Shares idle readers of Beam's ``UnboundedSource`` among all bundles of a stage.

Beam's DoFn keeps readers in its own instance until a bundle resumes from their checkpoint mark. But
while callbacks of bundle finalization are pending, the instance that registered them processes no
other bundle. So the next bundle would create each reader again, and idle readers would stay open.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from apache_beam.io import unbounded_source

_DOFN = unbounded_source._ReadFromUnboundedSourceDoFn
_setting_up = threading.local()


class StageReaders:
    """The idle readers of one stage.

    Threads: any.
    """

    def __init__(self) -> None:
        self._cache: Any = None

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Have DoFns that this thread sets up in the context keep their readers here."""
        _DOFN.setup, _DOFN.teardown = _set_up, _tear_down
        previous = getattr(_setting_up, "readers", None)
        _setting_up.readers = self
        try:
            yield
        finally:
            _setting_up.readers = previous

    def cache(self) -> Any:
        """Return Beam's reader cache, which is created on the first call."""
        if self._cache is None:
            self._cache = unbounded_source._ReaderCache()
        return self._cache

    def close(self) -> None:
        """Close the idle readers."""
        if self._cache is not None:
            self._cache.close_all()


def _set_up(dofn: Any) -> None:
    readers = getattr(_setting_up, "readers", None)
    dofn._reader_cache = unbounded_source._ReaderCache() if readers is None else readers.cache()
    dofn.keeps_its_own_readers = readers is None


def _tear_down(dofn: Any) -> None:
    """Close the readers of this instance. Readers of a stage are closed with the stage."""
    if dofn._reader_cache is not None and dofn.keeps_its_own_readers:
        dofn._reader_cache.close_all()
    dofn._reader_cache = None
