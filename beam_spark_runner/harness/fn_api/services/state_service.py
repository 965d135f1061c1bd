"""The state service: side inputs and large groups in pages, and user state."""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc

from beam_spark_runner.core.errors import FnApiProtocolError, StoredDataError
from beam_spark_runner.core.rendering import render_error
from beam_spark_runner.harness.bundle import SideInputLookup
from beam_spark_runner.harness.values.spilled_group import GroupClosedError
from beam_spark_runner.state.requests import USER_STATE, StateRequests

_LOGGER = logging.getLogger(__name__)

PAGE_BYTES = 1 << 20
_SIDE_INPUTS = frozenset({"iterable_side_input", "multimap_side_input", "multimap_keys_side_input"})
"""The types of ``StateKey`` that refer to side inputs. SDKs send that of a multimap's keys with
their values only to runners that offer it among their capabilities, as this one does not."""
_MAX_OPEN = 32
_SHARED = threading.Lock()
"""Held for each use of what bundles share, which serves one thread at a time: user state, whose
bundles in one task may share a shard, and lookups. A lookup may have any number of values, so this
lock is held for one of them at a time."""


class Pages:
    """Returns iterables of byte strings page by page, each of about a megabyte.

    A continuation token is the number of the next page. Readers usually go forward, so open
    iterators are kept. A request for an earlier page, or one whose iterator has been evicted,
    iterates from the beginning.

    Threads: one at a time.
    """

    def __init__(self, page_bytes: int = PAGE_BYTES) -> None:
        self._page_bytes = page_bytes
        self._open: OrderedDict[tuple[bytes, int], _Rest] = OrderedDict()

    def get(
        self, key: bytes, token: bytes, parts: Callable[[], Iterable[bytes]]
    ) -> tuple[bytes, bytes]:
        """Return a page of ``key``, and the token of the next: empty after the last.

        Args:
            key: Identifies the iterable.
            token: The token of the page; empty for the first.
            parts: Returns the iterable, which must have the same content each time.

        Raises:
            FnApiProtocolError: The token is not the number of a page.
        """
        if token and not (token.isdigit() and len(token) < 10):
            raise FnApiProtocolError(f"{token!r:.100} is no continuation token")
        number = int(token or 0)
        rest = self._open.pop((key, number), None)
        if rest is None:
            rest = _Rest(parts())
            for _ in range(number):
                rest.page(self._page_bytes)
                if rest.has_ended:  # a token may have any number
                    raise FnApiProtocolError(f"there is no page {number} of this state")
        page = rest.page(self._page_bytes)
        if rest.has_ended:
            return page, b""
        self._open[key, number + 1] = rest
        while len(self._open) > _MAX_OPEN:
            self._open.popitem(last=False)
        return page, b"%d" % (number + 1)


class _Rest:
    """The parts of an iterable that have not been read yet."""

    def __init__(self, parts: Iterable[bytes]) -> None:
        self._parts = iter(parts)
        self._following = next(self._parts, None)

    @property
    def has_ended(self) -> bool:
        """Whether all parts have been read."""
        return self._following is None

    def page(self, page_bytes: int) -> bytes:
        """Read the next page."""
        size, pieces = 0, []
        while self._following is not None and size < page_bytes:
            pieces.append(self._following)
            size += len(self._following)
            self._following = next(self._parts, None)
        return b"".join(pieces)


def _one_at_a_time(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the parts of a lookup, which bundles share; see ``_SHARED``."""
    while True:
        with _SHARED:
            part = next(parts, None)
        if part is None:
            return
        yield part


class BundleState:
    """The state that one bundle may read or write over the Fn API.

    Args:
        side_inputs: The lookups, by transform id and local name of the side input.
        user_state: The state of the bundle's keys; None: the stage has no user state.
        on_pages: Called when user state is read that does not fit into one page.

    Threads: ``answer`` one at a time, with ``answering``; ``keep_group`` from the bundle's thread.

    Attributes:
        answering: Held for each answer.
        failure: The last error of storage, for which user code is not to blame although the SDK
            raises it there.
    """

    def __init__(
        self,
        side_inputs: Mapping[tuple[str, str], SideInputLookup],
        user_state: StateRequests | None = None,
        on_pages: Callable[[], None] = lambda: None,
    ) -> None:
        self._side_inputs = side_inputs
        self._user_state = user_state
        self._on_pages = on_pages
        self._groups: dict[bytes, Iterable[bytes]] = {}
        self._pages = Pages()
        self.answering = threading.Lock()
        self.failure: StoredDataError | None = None

    def keep_group(self, token: bytes, coded_values: Iterable[bytes]) -> None:
        """Let the bundle read a group's values, nested encodings, any number of times."""
        self._groups[token] = coded_values

    def answer(self, request: beam_fn_api_pb2.StateRequest) -> beam_fn_api_pb2.StateResponse:
        """Answer one request.

        Raises:
            StoredDataError: Storage does not work; see ``failure``.
            FnApiProtocolError: The bundle has no such state.
            GroupClosedError: The bundle has no such group; it is one of another bundle.
        """
        try:
            return self._answer(request)
        except StoredDataError as error:
            self.failure = error
            raise

    def _answer(self, request: beam_fn_api_pb2.StateRequest) -> beam_fn_api_pb2.StateResponse:
        key = request.state_key
        kind = key.WhichOneof("type")
        if self._user_state is not None and kind in USER_STATE:
            with _SHARED:
                response = self._user_state.answer(request)
                if response.get.continuation_token:
                    self._on_pages()
            return response
        if request.WhichOneof("request") != "get":
            raise FnApiProtocolError(f"the SDK wrote state of kind {kind} in a stage that has none")
        page, token = self._pages.get(
            key.SerializeToString(deterministic=True),
            request.get.continuation_token,
            lambda: self._parts(kind, key),
        )
        return beam_fn_api_pb2.StateResponse(
            get=beam_fn_api_pb2.StateGetResponse(data=page, continuation_token=token)
        )

    def _parts(self, kind: str | None, key: beam_fn_api_pb2.StateKey) -> Iterable[bytes]:
        if kind == "runner":
            if key.runner.key not in self._groups:
                raise GroupClosedError
            return self._groups[key.runner.key]
        if kind not in _SIDE_INPUTS:
            raise FnApiProtocolError(f"the SDK asked for state of kind {kind}")
        request = getattr(key, kind)
        lookup = self._side_inputs.get((request.transform_id, request.side_input_id))
        if lookup is None:
            raise FnApiProtocolError(
                f"the SDK asked for the side input {request.side_input_id!r:.100} of "
                f"{request.transform_id!r:.100}, which the stage does not read"
            )
        if kind == "multimap_keys_side_input":
            return _one_at_a_time(lookup.keys(request.window))
        map_key = request.key if kind == "multimap_side_input" else None
        return _one_at_a_time(coded for coded, _ in lookup.values(request.window, map_key))


class StateStream:
    """The state stream of one SDK harness. Threads: any."""

    def __init__(self) -> None:
        self._bundles: dict[str, BundleState] = {}
        self._lock = threading.Lock()

    def open(self, instruction: str, state: BundleState) -> None:
        """Answer a bundle's requests from ``state``."""
        with self._lock:
            self._bundles[instruction] = state

    def forget(self, instruction: str) -> None:
        """Stop answering requests of a bundle that has ended."""
        with self._lock:
            bundle = self._bundles.pop(instruction, None)
        if bundle is not None:
            with bundle.answering:  # an answer may be reading a log that is closed next
                pass

    def answer(self, request: beam_fn_api_pb2.StateRequest) -> beam_fn_api_pb2.StateResponse:
        """Answer one request; errors are sent to the SDK, which raises them in user code."""
        try:
            bundle = self._bundle(request)
            with bundle.answering:
                self._bundle(request)  # it may have ended meanwhile
                response = bundle.answer(request)
        except Exception as error:
            if not isinstance(error, (FnApiProtocolError, GroupClosedError)):
                _LOGGER.exception("a state request failed")
            response = beam_fn_api_pb2.StateResponse(error=render_error(error).cause)
        response.id = request.id
        return response

    def _bundle(self, request: beam_fn_api_pb2.StateRequest) -> BundleState:
        with self._lock:
            bundle = self._bundles.get(request.instruction_id)
        if bundle is None:
            raise _nothing_is_under_way(request)
        return bundle


def _nothing_is_under_way(request: beam_fn_api_pb2.StateRequest) -> Exception:
    if request.state_key.WhichOneof("type") == "runner":
        return GroupClosedError()
    return FnApiProtocolError(f"no bundle {request.instruction_id!r:.100} is under way")


class StateService(beam_fn_api_pb2_grpc.BeamFnStateServicer):  # type: ignore[misc]
    """The gRPC servicer. ``stream_of`` finds the stream of the calling harness."""

    def __init__(self, stream_of: Callable[[Any], StateStream]) -> None:
        self._stream_of = stream_of

    def State(self, requests: Any, context: Any) -> Iterator[Any]:
        """Answer requests in their order."""
        return map(self._stream_of(context).answer, requests)
