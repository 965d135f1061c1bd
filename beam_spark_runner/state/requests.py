"""Serves the Fn API's state requests from a backend, for embedded and remote harnesses."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import FnApiProtocolError
from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.portable.bounded import BoundedReader, MalformedBytesError, skipper
from beam_spark_runner.portable.payloads import is_map_of_ours
from beam_spark_runner.state import wrong_requests
from beam_spark_runner.state.backend import (
    Address,
    Bag,
    Cell,
    ListRange,
    MapEntries,
    MapKeys,
    MapValues,
    Page,
    StateBackend,
)
from beam_spark_runner.state.memory import UNCOUNTED, CountValues

StateKey: TypeAlias = beam_fn_api_pb2.StateKey

_BYTES_ID = "beam_spark_runner:bytes"  # of a coder in descriptors
_BAG = common_urns.user_state.BAG.urn
MULTIMAP = common_urns.user_state.MULTIMAP.urn
_ORDERED_LIST = common_urns.user_state.ORDERED_LIST.urn
_MAP_KEYS = "multimap_keys_user_state"
_MAP_VALUES = "multimap_user_state"
_MAP_ENTRIES = "multimap_entries_user_state"
_PROTOCOLS = {
    "bag_user_state": _BAG,
    _MAP_KEYS: MULTIMAP,
    _MAP_VALUES: MULTIMAP,
    _MAP_ENTRIES: MULTIMAP,
    "ordered_list_user_state": _ORDERED_LIST,
}
USER_STATE = frozenset(_PROTOCOLS)
"""The types of ``StateKey`` that refer to user state of a DoFn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredState:
    """The declaration of one user state of a DoFn (proto ``StateSpec``)."""

    protocol: str  # urn of the protocol by which the SDK requests it
    value_coder: str = ""  # coder id; multimaps only


def declared_states(
    descriptor: beam_fn_api_pb2.ProcessBundleDescriptor,
) -> Mapping[tuple[str, str], DeclaredState]:
    """Find the user states of a stage, by transform id and state name."""
    states = {}
    for id_, transform in descriptor.transforms.items():
        if transform.spec.urn != common_urns.primitives.PAR_DO.urn:
            continue
        payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
        for name, spec in payload.state_specs.items():
            kind = spec.WhichOneof("spec")
            coder = getattr(getattr(spec, kind), "value_coder_id", "") if kind else ""
            # SDKs of before 2022 name no protocol; then all their states are bags.
            protocol = spec.protocol.urn or _BAG
            states[id_, name] = DeclaredState(protocol=protocol, value_coder=coder)
    return states


def use_maps(descriptor: beam_fn_api_pb2.ProcessBundleDescriptor) -> None:
    """Declare the maps of declarative steps as multimaps of bytes, to be requested by entry.

    To be called where the package runs the steps of the stage.
    """
    for transform in descriptor.transforms.values():
        if transform.spec.urn != common_urns.primitives.PAR_DO.urn:
            continue
        payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
        maps = [spec for spec in payload.state_specs.values() if is_map_of_ours(spec)]
        for spec in maps:
            spec.protocol.urn = MULTIMAP
            spec.multimap_spec.key_coder_id = spec.multimap_spec.value_coder_id = _BYTES_ID
        if maps:
            descriptor.coders[_BYTES_ID].spec.urn = urns.CODER_BYTES
            transform.spec.payload = payload.SerializeToString(deterministic=True)


def is_map_of_bytes(spec: beam_runner_api_pb2.StateSpec) -> bool:
    """Whether ``use_maps`` has declared a state."""
    return bool(spec.multimap_spec.key_coder_id == _BYTES_ID)


class StateRequests:
    """Answers the state requests of one stage. Threads: one at a time.

    Args:
        backend: The backend that stores the state.
        declared: See ``declared_states``.
        step_names: The names of transforms by id, for messages.

    Attributes:
        key: The key, encoded and nested, of which a request is that names none; see
            ``portable.environment_facts.names_keys_of_multimaps``.
    """

    def __init__(
        self,
        backend: StateBackend,
        states: Mapping[tuple[str, str], DeclaredState],
        step_names: Mapping[TransformId, str],
    ) -> None:
        self._backend = backend
        self._states = states
        self._step_names = step_names
        self.key = b""

    def get(self, key: StateKey, token: bytes = b"") -> Page:
        """See ``StateBackend.get``.

        Raises:
            FnApiProtocolError: The state is not declared, or is declared with another protocol.
        """
        return self._backend.get(self.address(key), token)

    def append(self, key: StateKey, data: bytes) -> None:
        """See ``StateBackend.append``; raises as ``get`` does."""
        self._backend.append(self.address(key), data)

    def clear(self, key: StateKey) -> None:
        """See ``StateBackend.clear``; raises as ``get`` does."""
        self._backend.clear(self.address(key))

    def replace_values(self, key: StateKey, data: bytes) -> None:
        """See ``StateBackend.replace_values``; raises as ``get`` does."""
        address = self.address(key)
        assert isinstance(address, MapValues)
        self._backend.replace_values(address, data)

    def answer(self, request: beam_fn_api_pb2.StateRequest) -> beam_fn_api_pb2.StateResponse:
        """Answer a request of the state service, with ``error`` set if the request is wrong."""
        response = beam_fn_api_pb2.StateResponse(id=request.id)
        try:
            match request.WhichOneof("request"):
                case "get":
                    page = self.get(request.state_key, request.get.continuation_token)
                    response.get.data = page.data
                    response.get.continuation_token = page.token
                case "append":
                    self.append(request.state_key, request.append.data)
                    response.append.SetInParent()
                case "clear":
                    self.clear(request.state_key)
                    response.clear.SetInParent()
                case other:
                    raise FnApiProtocolError(f"a state request of the unknown kind {other}")
        except FnApiProtocolError as error:
            response.error = str(error)
        return response

    def address(self, key: StateKey) -> Address:
        """Convert a state key of the Fn API to an address of a backend.

        Raises:
            FnApiProtocolError: The state is not declared, or is declared with another protocol.
        """
        kind = key.WhichOneof("type")
        protocol = _PROTOCOLS.get(kind)
        if protocol is None:
            raise FnApiProtocolError(f"the SDK asked for state of kind {kind}")
        request = getattr(key, kind)
        cell = Cell(
            request.transform_id, request.user_state_id, request.window, request.key or self.key
        )
        self._check(cell, protocol)
        if kind == _MAP_KEYS:
            return MapKeys(cell)
        if kind == _MAP_VALUES:
            return MapValues(cell, request.map_key)
        if kind == _MAP_ENTRIES:
            return MapEntries(cell)
        if protocol == _ORDERED_LIST:
            return ListRange(cell, request.range.start, request.range.end)
        return Bag(cell)

    def _check(self, cell: Cell, protocol: str) -> None:
        state = self._states.get((cell.transform, cell.state))
        if state is not None and state.protocol == protocol:
            return
        step = self._step_names.get(TransformId(cell.transform), cell.transform)
        if state is None:
            raise FnApiProtocolError(
                f"{step}: the SDK asked for the state {cell.state!r}, which the DoFn does not "
                "declare"
            )
        raise FnApiProtocolError(
            f"{step}: the SDK asked for the state {cell.state!r} by {protocol}, but it is "
            f"declared as {state.protocol}"
        )


def value_counter(
    descriptor: beam_fn_api_pb2.ProcessBundleDescriptor,
    states: Mapping[tuple[str, str], DeclaredState],
) -> CountValues:
    """Return a function that counts encoded multimap values, by the coders that DoFns declare.

    It reads past the values, and decodes none. It raises FnApiProtocolError if the bytes are no
    values of the coder.

    Args:
        descriptor: The descriptor of the stage.
        states: See ``declared_states``.
    """
    skips = {
        key: skipper(descriptor.coders, state.value_coder)
        for key, state in states.items()
        if state.value_coder
    }

    def count(cell: Cell, data: bytes) -> int:
        skip = skips.get((cell.transform, cell.state))
        if skip is None:
            return UNCOUNTED
        reader = BoundedReader(data)
        values = 0
        try:
            while reader.bytes_left:
                skip(reader)
                values += 1
        except MalformedBytesError as error:
            raise wrong_requests.malformed_values(cell, str(error)) from error
        return values

    return count
