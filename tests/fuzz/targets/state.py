"""What SDK harnesses ask about state."""

import itertools
import random
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TypeAlias

from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner.core.errors import RunnerError
from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.harness.fn_api.services.state_service import BundleState
from beam_spark_runner.harness.values.spilled_group import GroupClosedError
from beam_spark_runner.state.backend import StateBackend
from beam_spark_runner.state.memory import CountValues, MemoryState
from beam_spark_runner.state.requests import (
    USER_STATE,
    StateRequests,
    declared_states,
    value_counter,
)
from beam_spark_runner.state.store import StoredState
from tests.fuzz.corpus import Recorded, framed, frames
from tests.fuzz.protos import Pool
from tests.fuzz.targets.base import Messages, Target
from tests.fuzz.targets.stages import Stage, stages_of
from tests.unit.state.sorted_records import SortedRecords

Request: TypeAlias = beam_fn_api_pb2.StateRequest
_TOKENS = (b"", b"1", b"0", b"2", b"999999999", b"-1", b"x", b"9" * 30, bytes(24), b"\xff" * 24)
_KINDS = (
    *("bag_user_state", "multimap_keys_user_state", "multimap_user_state"),
    *("multimap_entries_user_state", "ordered_list_user_state", "iterable_side_input"),
    *("multimap_side_input", "multimap_keys_side_input", "runner"),
    "multimap_keys_values_side_input",
)
_GROUP = b"group"


class _Lookup:
    """A side input with the same values in each window."""

    id = "job/side input"

    def values(self, window: bytes, key: bytes | None) -> Iterator[tuple[bytes, int]]:
        for number in range(3):
            yield b"\1%d" % number, 1

    def keys(self, window: bytes) -> Iterator[bytes]:
        yield b"\1k"


class State(Target):
    """Several requests about state of one bundle."""

    name = "state"
    share = 3.0
    named = (GroupClosedError,)

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._stages = [each for each in stages if each.requests]

    @cached_property
    def _pools(self) -> list[Pool]:
        return [Pool(each.requests) for each in self._stages]

    def case(self, random_: random.Random) -> bytes:
        number = random_.randrange(len(self._stages))
        stage, pool = self._stages[number], self._pools[number]
        asked = []
        for _ in range(random_.choice((1, 3, 6, 12))):
            request = Request()
            request.CopyFrom(random_.choice(stage.requests))
            self._change(request, stage, random_)
            if random_.random() < 0.4:
                request = pool.mutated(request, random_, 1)
            asked.append(framed(Recorded("", number, request.SerializeToString())))
        return b"".join(asked)

    def _change(self, request: Request, stage: Stage, random_: random.Random) -> None:
        """Ask for the same state in another way, so that requests of one case meet."""
        kind = request.state_key.WhichOneof("type")
        which = random_.random()
        if which < 0.2 and kind in USER_STATE:
            before = getattr(request.state_key, kind)
            other = getattr(request.state_key, random_.choice(_KINDS[:5]))
            other.transform_id, other.user_state_id = before.transform_id, before.user_state_id
            other.key, other.window = b"k", b""
        elif which < 0.25:
            getattr(request.state_key, random_.choice(_KINDS)).SetInParent()
            if request.state_key.HasField("runner"):
                request.state_key.runner.key = _GROUP
        action = random_.randrange(6)
        if action == 0:
            request.clear.SetInParent()
        elif action == 1:
            request.get.continuation_token = random_.choice(_TOKENS)
        elif action == 2:
            written = [each.append.data for each in stage.requests if each.append.data]
            request.append.data = random_.choice([*written, b"", b"\1a\1b", b"\xff" * 4])

    def run(self, case: bytes) -> object:
        state: BundleState | None = None
        refused: Exception | None = None
        for _, number, coded in itertools.islice(frames(case), 30):
            if state is None:
                state = self._state_of(self._stages[max(number, 0) % len(self._stages)])
            try:
                state.answer(Request.FromString(coded))
            except (RunnerError, *self.named) as error:
                refused = error
        if refused is not None:
            raise refused
        return None

    def _state_of(self, stage: Stage) -> BundleState:
        """Return the state of a new bundle, as ``RemoteStage`` makes it."""
        descriptor = stage.descriptor
        declared = declared_states(descriptor)
        backend = self._backend(value_counter(descriptor, declared))
        names = {TransformId(id_): each.unique_name for id_, each in descriptor.transforms.items()}
        asked = [each.state_key for each in stage.requests]
        sides = {
            (key.transform_id, key.side_input_id)
            for each in asked
            for key in (each.iterable_side_input, each.multimap_side_input)
            if key.side_input_id
        }
        user_state = StateRequests(backend, declared, names) if declared else None
        state = BundleState(dict.fromkeys(sides, _Lookup()), user_state)
        state.keep_group(_GROUP, [b"\1a"] * 3)
        return state

    def _backend(self, count: CountValues) -> StateBackend:
        return MemoryState(count, limit_bytes=1 << 10, page_bytes=20)


class StoredStateOfStreams(State):
    """The same requests, answered from the records of a shard."""

    name = "stored-state"
    share = 2.0

    def _backend(self, count: CountValues) -> StateBackend:
        return StoredState(SortedRecords(), 1, count, page_bytes=20)


def targets(messages: Messages) -> list[Target]:
    """Return the targets of this module."""
    stages = stages_of(messages)
    return [State(stages), StoredStateOfStreams(stages)]
