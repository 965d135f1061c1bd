"""Answers the embedded SDK's state requests from this process."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from apache_beam.coders import Coder, coder_impl
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.worker import sdk_worker
from typing_extensions import override

from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.harness.beam.side_input_cache import DecodedCache
from beam_spark_runner.harness.bundle import SideInputLookup
from beam_spark_runner.state.backend import StateBackend, StoredTimer
from beam_spark_runner.state.memory import MemoryState
from beam_spark_runner.state.requests import (
    StateKey,
    StateRequests,
    declared_states,
    value_counter,
)


class _Written:
    """The future of a request that has been answered already."""

    def get(self) -> None:
        """Return at once."""


_WRITTEN = _Written()
_PIECE_BYTES = 1 << 16


class EmbeddedStateHandler(sdk_worker.CachingStateHandler):  # type: ignore[misc]
    """Side inputs, and user state of the bundle's keys. Threads: one at a time."""

    def __init__(
        self,
        descriptor: beam_fn_api_pb2.ProcessBundleDescriptor,
        step_names: Mapping[TransformId, str],
        cache: DecodedCache | None = None,
    ) -> None:
        self._cache = cache or DecodedCache()
        self.side_inputs: Mapping[tuple[str, str], SideInputLookup] = {}
        states = declared_states(descriptor)
        self._declared_states, self._step_names = states, step_names
        self._memory = MemoryState(value_counter(descriptor, states))
        self._use(self._memory)
        self._written_keys: set[bytes] = set()

    def begin(
        self,
        side_inputs: Mapping[tuple[str, str], SideInputLookup],
        store: StateBackend | None,
    ) -> None:
        """Begin a bundle.

        Args:
            side_inputs: The lookups, by transform id and local name of the side input.
            store: The store of state and timers, which may have some of earlier bundles; None:
                keys begin empty, and are dropped in the bundle.
        """
        self.side_inputs = side_inputs
        backend = self._memory if store is None else store
        if backend is not self._backend:
            self._use(backend)

    def _use(self, backend: StateBackend) -> None:
        self._backend = backend
        self._requests = StateRequests(backend, self._declared_states, self._step_names)

    @property
    def is_storing(self) -> bool:
        """Whether keys outlive the bundle."""
        return self._backend is not self._memory

    @override
    def timers(self, transform: str, key: bytes) -> Sequence[StoredTimer]:
        return self._backend.timers(transform, key)

    @override
    def set_timers(self, transform: str, key: bytes, timers: Sequence[StoredTimer]) -> None:
        self._backend.set_timers(transform, key, timers)

    @override
    def drop_window(self, transform: str, window: bytes, key: bytes) -> None:
        self._backend.drop_window(transform, window, key)

    @contextlib.contextmanager
    def process_instruction_id(self, bundle_id: str, cache_tokens: Iterable[Any]) -> Iterator[None]:
        yield

    def blocking_get(self, state_key: StateKey, coder: coder_impl.CoderImpl) -> Iterable[Any]:
        kind = state_key.WhichOneof("type")
        if kind == "iterable_side_input":
            request, key = state_key.iterable_side_input, None
        elif kind == "multimap_side_input":
            request, key = state_key.multimap_side_input, state_key.multimap_side_input.key
        else:
            return self._read(state_key, coder)
        lookup = self.side_inputs[request.transform_id, request.side_input_id]
        return self._cache.values(lookup, request.window, key, coder)

    def extend(
        self, state_key: StateKey, coder: coder_impl.CoderImpl, elements: Iterable[Any]
    ) -> _Written:
        """Append elements in small pieces, because pages of a backend consist of whole pieces."""
        address = self._requests.address(state_key)
        self._written_keys.add(address.cell.key)
        coded: list[bytes] = []
        size = 0
        for element in elements:
            coded.append(coder.encode_nested(element))
            size += len(coded[-1])
            if size > _PIECE_BYTES:
                self._backend.append(address, b"".join(coded))
                coded, size = [], 0
        self._backend.append(address, b"".join(coded))
        return _WRITTEN

    def clear(self, state_key: StateKey) -> _Written:
        self._requests.clear(state_key)
        return _WRITTEN

    def replace_value(self, state_key: StateKey, coded: bytes) -> None:
        """Set the one value of a key of a multimap.

        Args:
            state_key: That of the values.
            coded: The value, encoded.
        """
        self._written_keys.add(self._requests.address(state_key).cell.key)
        self._requests.replace_values(state_key, coded)

    def forget_keys(self) -> None:
        """Drop the keys that were written, unless they are stored."""
        if self._written_keys:
            if not self.is_storing:
                for key in self._written_keys:
                    self._backend.drop(key)
            self._written_keys.clear()

    def done(self) -> None:
        """Do nothing: all requests have been answered."""

    def _read(self, state_key: StateKey, coder: Coder | coder_impl.CoderImpl) -> Iterator[Any]:
        token = b""
        while True:
            page = self._requests.get(state_key, token)
            yield from coder.decode_all(page.data)
            token = page.token
            if not token:
                return
