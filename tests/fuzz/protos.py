"""Changes messages field by field, and the coded values in their fields of bytes."""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2, metrics_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from tests.fuzz import coded

_TEXTS = ("", "x", "x" * 3_000, "\0", "a/../../b", "é\u2028\U0001f600", "-1", "9" * 5_000, "٣")
_FLOATS = (0.0, -1.0, 1e308, float("nan"), float("inf"), -0.0, 5e-324)
_NUMBERS = tuple(
    number
    for power in (0, 7, 15, 16, 20, 31, 32, 53, 62, 63, 64)
    for number in (1 << power, (1 << power) - 1, -(1 << power))
)
_LIMITS: Mapping[int, tuple[int, int]] = {
    kind: (0 if unsigned else -(1 << bits - 1), (1 << bits - (0 if unsigned else 1)) - 1)
    for kind, bits, unsigned in (
        (FieldDescriptor.CPPTYPE_INT32, 32, False),
        (FieldDescriptor.CPPTYPE_INT64, 64, False),
        (FieldDescriptor.CPPTYPE_UINT32, 32, True),
        (FieldDescriptor.CPPTYPE_UINT64, 64, True),
        (FieldDescriptor.CPPTYPE_ENUM, 32, False),
    )
}
_PAR_DO = common_urns.primitives.PAR_DO.urn
_PAYLOADS: Mapping[str, type[Message]] = {
    _PAR_DO: beam_runner_api_pb2.ParDoPayload,
    common_urns.sdf_components.PAIR_WITH_RESTRICTION.urn: beam_runner_api_pb2.ParDoPayload,
    common_urns.composites.COMBINE_PER_KEY.urn: beam_runner_api_pb2.CombinePayload,
    common_urns.primitives.ASSIGN_WINDOWS.urn: beam_runner_api_pb2.WindowIntoPayload,
    common_urns.primitives.TEST_STREAM.urn: beam_runner_api_pb2.TestStreamPayload,
    common_urns.deprecated_primitives.READ.urn: beam_runner_api_pb2.ReadPayload,
    common_urns.environments.DOCKER.urn: beam_runner_api_pb2.DockerPayload,
    common_urns.environments.PROCESS.urn: beam_runner_api_pb2.ProcessPayload,
    common_urns.environments.EXTERNAL.urn: beam_runner_api_pb2.ExternalPayload,
    common_urns.artifact_types.FILE.urn: beam_runner_api_pb2.ArtifactFilePayload,
    common_urns.artifact_roles.STAGING_TO.urn: beam_runner_api_pb2.ArtifactStagingToRolePayload,
    "beam:metric:user:bounded_trie:v1": metrics_pb2.BoundedTrie,
}
"""The messages in fields of bytes, by the urn next to these fields."""
_MAX_CHANGES = (1, 1, 1, 2, 3, 8)


class _Place(NamedTuple):
    owner: Any
    field: FieldDescriptor


class Pool:
    """What messages are made of, to put it into others: texts, bytes, and messages by their type.

    Args:
        messages: Real messages.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        texts: dict[str, None] = {}
        blobs: dict[bytes, None] = {}
        self._parts: dict[str, list[Message]] = {}
        for message in messages:
            for part in _parts(message):
                kept = self._parts.setdefault(part.DESCRIPTOR.full_name, [])
                if len(kept) < 50:
                    kept.append(part)
                for field, value in part.ListFields():
                    for each in value if field.is_repeated else (value,):
                        if isinstance(each, str):
                            texts[each] = None
                        elif isinstance(each, bytes) and len(each) < 4_000:
                            blobs[each] = None
        self.texts = [*list(texts)[:300], *_TEXTS]
        self.blobs = list(blobs)[:500]

    def mutated(self, message: Message, random_: random.Random, changes: int = 0) -> Message:
        """Return a changed copy of a message.

        Args:
            message: The message, which is not changed.
            random_: The source of all decisions.
            changes: How many fields to change; 0: some.
        """
        copy = type(message)()
        copy.CopyFrom(message)
        for _ in range(changes or random_.choice(_MAX_CHANGES)):
            places = list(_places(copy))
            if not places:
                break
            # Bytes are where the coders are.
            coded_places = [each for each in places if _is_bytes(each.field)]
            if coded_places and random_.random() < 0.5:
                places = coded_places
            self._change(random_.choice(places), random_)
        return copy

    def _change(self, place: _Place, random_: random.Random) -> None:
        owner, field = place
        value = getattr(owner, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            self._change_map(place, value, random_)
        elif random_.random() < 0.15:
            owner.ClearField(field.name)
        elif field.message_type is not None:
            self._change_messages(place, value, random_)
        elif field.is_repeated:
            self._change_list(place, value, random_)
        else:
            setattr(owner, field.name, self._other(place, value, random_))

    def _change_map(self, place: _Place, value: Any, random_: random.Random) -> None:
        keys = list(value)
        of_texts = _type_of(place.field).fields_by_name["key"].cpp_type
        is_text = of_texts == FieldDescriptor.CPPTYPE_STRING
        key = random_.choice([*keys, *(self.texts if is_text else (0, 1, 7))])
        kind = random_.randrange(3)
        if kind == 0 and keys:
            del value[random_.choice(keys)]
        elif _type_of(place.field).fields_by_name["value"].message_type is not None:
            if kind == 1 and keys:  # one becomes another
                value[key].CopyFrom(value[random_.choice(keys)])
            else:
                value[key].SetInParent()
        else:
            before = value[random_.choice(keys)] if keys else None
            field = _type_of(place.field).fields_by_name["value"]
            value[key] = self._other(_Place(place.owner, field), before, random_)

    def _change_messages(self, place: _Place, value: Any, random_: random.Random) -> None:
        others = self._parts.get(_type_of(place.field).full_name, ())
        if not place.field.is_repeated:
            if others:
                value.CopyFrom(random_.choice(others))
            return
        kind = random_.randrange(4)
        if kind == 0 and len(value):
            del value[random_.randrange(len(value))]
        elif kind == 1 and len(value):  # twice, or a hundred times
            one = type(value[0]).FromString(random_.choice(value).SerializeToString())
            value.extend([one] * random_.choice((1, 1, 2, 100)))
        elif others:
            if kind == 2 and len(value):
                random_.choice(value).CopyFrom(random_.choice(others))
            else:
                value.append(random_.choice(others))

    def _change_list(self, place: _Place, value: Any, random_: random.Random) -> None:
        kind = random_.randrange(3)
        if kind == 0 and len(value):
            del value[random_.randrange(len(value)) :]
        elif kind == 1 and len(value):
            value[random_.randrange(len(value))] = self._other(place, value[0], random_)
        else:
            value.append(self._other(place, None, random_))

    def _other(self, place: _Place, value: Any, random_: random.Random) -> Any:
        """Return another value for a field that is no message."""
        field = place.field
        if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            return not value
        if field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
            return random_.choice(_FLOATS)
        if field.cpp_type != FieldDescriptor.CPPTYPE_STRING:
            least, most = _LIMITS[field.cpp_type]
            near = (value or 0) + random_.choice((-1, 1, 2, 1000))
            return min(most, max(least, random_.choice((near, *_NUMBERS))))
        if not _is_bytes(field):
            return random_.choice(self.texts)
        return self.changed_bytes(value or b"", random_, _payload_type(place.owner, field))

    def changed_bytes(
        self, value: bytes, random_: random.Random, type_: type[Message] | None = None
    ) -> bytes:
        """Change coded values, or a serialised message if their type is given."""
        if type_ is not None and random_.random() < 0.7:
            try:
                return bytes(self.mutated(type_.FromString(value), random_).SerializeToString())
            except DecodeError:
                pass
        if self.blobs and random_.random() < 0.1:
            return random_.choice(self.blobs)
        return coded.mutated(value, random_, self.blobs)


def smaller_messages(message: Message) -> Iterator[Message]:
    """Yield copies of a message that lack a part of it."""
    for number, (_, field) in enumerate(list(_places(message))):
        value: Any = getattr(list(_places(message))[number].owner, field.name)
        is_text = isinstance(value, (bytes, str))
        length = len(value) if field.is_repeated or is_text else 0
        step = length
        while step:
            for start in range(0, length, step):
                copy = type(message)()
                copy.CopyFrom(message)
                owner = list(_places(copy))[number].owner
                if is_text:
                    setattr(owner, field.name, value[:start] + value[start + step :])
                elif hasattr(value, "keys"):
                    for key in list(value)[start : start + step]:
                        del getattr(owner, field.name)[key]
                else:
                    del getattr(owner, field.name)[start : start + step]
                yield copy
            step //= 2
        if not length:
            copy = type(message)()
            copy.CopyFrom(message)
            list(_places(copy))[number].owner.ClearField(field.name)
            yield copy


def _type_of(field: FieldDescriptor) -> Any:
    """Return the descriptor of the messages in a field; of a map, they are its entries."""
    return field.message_type


def _is_bytes(field: FieldDescriptor) -> bool:
    return field.type == FieldDescriptor.TYPE_BYTES


def _payload_type(owner: Any, field: FieldDescriptor) -> type[Message] | None:
    """Return the type of a message that is serialised in a field, if the urn next to it tells."""
    for name in ("urn", "type", field.name.replace("payload", "urn")):
        urn = getattr(owner, name, None)
        if isinstance(urn, str) and urn in _PAYLOADS:
            return _PAYLOADS[urn]
    return None


def _parts(message: Message) -> Iterator[Message]:
    """Yield a message and all messages in it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in _messages_of(field, value):
                yield from _parts(each)


def _places(message: Message) -> Iterator[_Place]:
    """Yield the fields that are set in a message and in all messages in it."""
    for field, value in message.ListFields():
        yield _Place(message, field)
        if field.message_type is not None:
            for each in _messages_of(field, value):
                yield from _places(each)


def _messages_of(field: FieldDescriptor, value: Any) -> Sequence[Message]:
    if _type_of(field).GetOptions().map_entry:
        if _type_of(field).fields_by_name["value"].message_type is None:
            return ()
        return list(value.values())
    return list(value) if field.is_repeated else [value]
