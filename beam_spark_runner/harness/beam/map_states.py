"""Maps of declarative steps, whose entries are requested one by one.

The DoFn of such a step declares a map as a ``MapSpec`` of ``transforms.declarative``. To Beam that
is a bag, of which harnesses without this package read the whole. Where this package runs the
step, the map is a multimap with one value for each key; keys and values are bytes
(``state.requests.use_maps``).
"""

from collections.abc import Callable, Iterator
from typing import Any

from apache_beam.coders import BytesCoder, IterableCoder, TupleCoder
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2
from apache_beam.runners.worker import bundle_processor, operations
from apache_beam.transforms import core
from typing_extensions import override

from beam_spark_runner.state.requests import is_map_of_bytes

_BYTES = BytesCoder().get_impl()
_ENTRIES = TupleCoder((BytesCoder(), IterableCoder(BytesCoder()))).get_impl()
_MAX_READ = 10_000  # entries that were read and not changed, and are kept
_ENTRY_BYTES = 100  # the memory that an entry takes in addition to its bytes
_Factory: Any = bundle_processor.BeamTransformFactory


def has_entries(spec: Any) -> bool:
    """Whether a state of a DoFn is a map of a declarative step."""
    return bool(getattr(spec, "has_entries", False))


def patch_states() -> None:
    """Have Beam's own operations in this process use ``KeyMap`` where ``use_maps`` was applied."""
    urn = common_urns.primitives.PAR_DO.urn
    create_by_beam, _ = _Factory._known_urns[urn]

    def create_par_do(
        factory: Any, transform_id: str, transform: Any, payload: Any, consumers: Any
    ) -> Any:
        if not any(map(is_map_of_bytes, payload.state_specs.values())):
            return create_by_beam(factory, transform_id, transform, payload, consumers)

        def create(*arguments: Any) -> operations.DoOperation:
            *others, context = arguments
            states = _StatesWithMaps(
                context._state_handler,
                context._transform_id,
                context._key_coder,
                context._window_coder,
            )
            return operations.DoOperation(*others, states)

        info = core.DoFnInfo.from_runner_api(payload.do_fn, factory.context)
        return bundle_processor._create_pardo_operation(
            factory,
            transform_id,
            transform,
            consumers,
            info.serialized_dofn_data(),
            payload,
            operation_cls=create,
        )

    _Factory.register_urn(urn, beam_runner_api_pb2.ParDoPayload)(create_par_do)


class _StatesWithMaps(bundle_processor.FnApiUserStateContext):  # type: ignore[misc]
    """The states of a step that has maps, in an SDK harness."""

    @override
    def _create_state(self, spec: Any, key: Any, window: Any) -> Any:
        if not has_entries(spec):
            return super()._create_state(spec, key, window)
        return KeyMap(
            self._state_handler,
            self._transform_id,
            spec.name,
            lambda: (self._window_coder.encode(window), self._key_coder.encode_nested(key)),
        )


class KeyMap:
    """A map from bytes to bytes of one key and window. Changes are written by ``commit``.

    Args:
        handler: Answers state requests.
        transform: The id of the transform.
        state: The name of the state.
        coded: Encodes window and key.
        is_new: Whether the map is known to be empty.
        count: Called with the size in bytes of each entry that is kept until ``commit``.
    """

    def __init__(
        self,
        handler: Any,
        transform: str,
        state: str,
        coded: Callable[[], tuple[bytes, bytes]],
        *,
        is_new: bool = False,
        count: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._handler, self._transform, self._state, self._coded = handler, transform, state, coded
        self._count = count
        self._is_empty = is_new  # whether the stored map has no entries, or will have none
        self._is_cleared = False  # whether it must be cleared by ``commit``
        self._entries: dict[bytes, bytes | None] = {}  # those read or changed; None: there is none
        self._stored: dict[bytes, bool] = {}  # whether the stored map has a key, as far as known
        self._changed: dict[bytes, None] = {}  # in order, the same in each attempt

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None: it has none."""
        if key in self._entries:
            return self._entries[key]
        if self._is_empty:
            return None
        request = self._multimap("multimap_user_state", map_key=_BYTES.encode_nested(key))
        value = next(iter(self._handler.blocking_get(request, _BYTES)), None)
        if len(self._entries) >= len(self._changed) + _MAX_READ:
            self._entries = {changed: self._entries[changed] for changed in self._changed}
            self._stored = {changed: self._stored.get(changed, True) for changed in self._changed}
        self._stored[key] = value is not None
        self._keep(key, value)
        return value

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key."""
        self._changed[key] = None
        self._keep(key, value)

    def remove(self, key: bytes) -> None:
        """Remove a key."""
        self._changed[key] = None
        self._keep(key, None)

    def items(self) -> "_Items":
        """Return the keys with their values, as they are now."""
        changed = {key: self._entries[key] for key in self._changed}
        return _Items(None if self._is_empty else self._stored_items, changed)

    def clear(self) -> None:
        """Remove all keys."""
        self._is_cleared = self._is_cleared or not self._is_empty
        self._is_empty = True
        self._entries, self._stored, self._changed = {}, {}, {}

    def commit(self) -> None:
        """Write the changes."""
        answers = []
        if self._is_cleared:
            answers.append(self._handler.clear(self._multimap("multimap_keys_user_state")))
        replace = getattr(self._handler, "replace_value", None)  # Beam's has no such method
        for key in self._changed:
            request = self._multimap("multimap_user_state", map_key=_BYTES.encode_nested(key))
            value = self._entries[key]
            if replace is not None and value is not None:
                replace(request, _BYTES.encode_nested(value))
                continue
            if not self._is_empty and self._stored.get(key, True):
                answers.append(self._handler.clear(request))
            if value is not None:
                answers.append(self._handler.extend(request, _BYTES, [value]))
        for answer in answers:
            answer.get()
        self._is_cleared = self._is_empty = False
        self._entries, self._stored, self._changed = {}, {}, {}

    def finalize(self) -> None:
        """Do nothing; Beam calls this after the bundle."""

    def _keep(self, key: bytes, value: bytes | None) -> None:
        self._entries[key] = value
        self._count(len(key) + len(value or b"") + _ENTRY_BYTES)

    def _stored_items(self) -> Iterator[tuple[bytes, bytes]]:
        request = self._multimap("multimap_entries_user_state")
        for key, values in self._handler.blocking_get(request, _ENTRIES):
            (value,) = values
            yield key, value

    def _multimap(self, kind: str, **fields: bytes) -> beam_fn_api_pb2.StateKey:
        window, key = self._coded()
        state_key = beam_fn_api_pb2.StateKey()
        request = getattr(state_key, kind)
        request.transform_id, request.user_state_id = self._transform, self._state
        request.window, request.key = window, key
        for name, value in fields.items():
            setattr(request, name, value)
        return state_key


class _Items:
    """The items of a map at one moment. They may be iterated until the map is committed."""

    def __init__(
        self,
        stored: Callable[[], Iterator[tuple[bytes, bytes]]] | None,
        changed: dict[bytes, bytes | None],
    ) -> None:
        self._stored, self._changed = stored, changed

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        if self._stored is not None:
            for key, value in self._stored():
                if key not in self._changed:
                    yield key, value
        for key, changed in self._changed.items():
            if changed is not None:
                yield key, changed
