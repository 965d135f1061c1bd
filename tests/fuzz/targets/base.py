"""What a target is: code that gets bytes of strangers, called as production calls it."""

import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from beam_spark_runner.core.errors import InvariantError, RunnerError
from tests.fuzz import coded, corpus
from tests.fuzz.corpus import NO_STAGE, Recorded
from tests.fuzz.protos import Pool, smaller_messages

M = TypeVar("M", bound=Message)


class Refused(Exception):
    """A gRPC call was refused with a status that blames the caller."""


class BrokenServiceError(Exception):
    """A gRPC call ended with a status that blames the server."""


class Context:
    """In place of gRPC's context of a call."""

    def __init__(self, **metadata: str) -> None:
        self._metadata = tuple(metadata.items())

    def abort(self, code: Any, details: str) -> None:
        if code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN):
            # The caller holds the error that it blames itself for.
            cause = sys._getframe(1).f_locals.get("error")
            raise BrokenServiceError(f"{code}: {details}") from cause
        raise Refused(code.name)

    def set_trailing_metadata(self, metadata: Any) -> None: ...
    def send_initial_metadata(self, metadata: Any) -> None: ...
    def cancel(self) -> None: ...
    def add_callback(self, callback: Callable[[], None]) -> bool:
        return True

    def is_active(self) -> bool:
        return True

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def invocation_metadata(self) -> Any:
        return self._metadata


class Target(ABC):
    """A part of the runner that gets bytes of strangers.

    Attributes:
        name: Its name on the command line.
        share: How many of its messages there are, in comparison to those of other targets.
        named: The errors that it may raise; all others are defects, and so is an InvariantError.
    """

    name: ClassVar[str]
    share: ClassVar[float] = 1.0
    named: ClassVar[tuple[type[BaseException], ...]] = ()

    @abstractmethod
    def case(self, random_: random.Random) -> bytes:
        """Return what strangers might send."""

    @abstractmethod
    def run(self, case: bytes) -> object:
        """Have the runner take a case; the result only tells what became of it."""

    def smaller(self, case: bytes) -> Iterator[bytes]:
        """Yield cases that are like a case, but smaller; the smallest first."""
        size = len(case) // 2
        while size:
            for start in range(0, len(case), size):
                yield case[:start] + case[start + size :]
            size //= 2

    def begin(self) -> None:  # noqa: B027
        """Prepare this process for cases, after it has been forked."""

    def outcome(self, case: bytes) -> str:
        """Run a case.

        Returns:
            What became of it: the name of an error, or ``taken``.

        Raises:
            BaseException: An error that is not among those that are named.
        """
        try:
            self.run(case)
        except InvariantError:
            raise
        except Refused as error:
            return str(error)
        except DecodeError:  # gRPC refuses such messages, and the readers of files name them
            return "no message"
        except Exception as error:
            if not isinstance(error, (RunnerError, *self.named)):
                raise
            return type(error).__name__
        return "taken"


class Messages:
    """All messages that were recorded, of all SDKs.

    Args:
        sdks: The SDKs.
    """

    def __init__(self, sdks: Sequence[str]) -> None:
        self.stages: list[bytes] = []
        """Serialised ProcessBundleDescriptors."""
        self._all: list[Recorded] = []
        for sdk in sdks:
            first = len(self.stages)
            for message in corpus.read(sdk):
                if message.kind == "ProcessBundleDescriptor":
                    self.stages.append(message.coded)
                else:
                    stage = message.stage + first if message.stage != NO_STAGE else NO_STAGE
                    self._all.append(message._replace(stage=stage))

    def of(self, type_: type[M]) -> list[tuple[int, M]]:
        """Return the messages of a type, with the numbers of their stages."""
        name = type_.DESCRIPTOR.full_name.rpartition(".v1.")[2]
        return [
            (each.stage, type_.FromString(each.coded)) for each in self._all if each.kind == name
        ]


class MessageTarget(Target, Generic[M]):
    """Gets one message of one type.

    Args:
        messages: Real ones.
    """

    def __init__(self, messages: Sequence[M]) -> None:
        self.messages = messages
        self._type = type(messages[0])

    @cached_property
    def pool(self) -> Pool:
        return Pool(self.messages)

    def case(self, random_: random.Random) -> bytes:
        message = self.message(random_).SerializeToString()
        return coded.mutated(message, random_, ()) if random_.random() < 0.03 else message

    def smaller(self, case: bytes) -> Iterator[bytes]:
        """See ``Target.smaller``: without some of its fields, or with shorter ones."""
        try:
            message = self._type.FromString(case)
        except DecodeError:
            return super().smaller(case)
        return (each.SerializeToString() for each in smaller_messages(message))

    def message(self, random_: random.Random) -> Message:
        """Return a changed message."""
        return self.pool.mutated(random_.choice(self.messages), random_)

    def run(self, case: bytes) -> object:
        return self.take(self._type.FromString(case))

    @abstractmethod
    def take(self, message: M) -> object:
        """Have the runner take a message."""


class BytesTarget(Target):
    """Gets the content of a field, or of a file.

    Args:
        real: Real content.
    """

    def __init__(self, real: Sequence[bytes]) -> None:
        self._real = real

    def case(self, random_: random.Random) -> bytes:
        return coded.mutated(random_.choice(self._real), random_, self._real)


class PlacedTarget(Target):
    """Gets the content of fields of several kinds, each with the place that it is for.

    Args:
        real: Real content, by place; a case begins with the number of the place, in two bytes.
    """

    def __init__(self, real: Sequence[tuple[Any, Sequence[bytes]]]) -> None:
        self._places = [(place, contents) for place, contents in real if contents]

    def case(self, random_: random.Random) -> bytes:
        number = random_.randrange(len(self._places))
        contents = self._places[number][1]
        changed = coded.mutated(random_.choice(contents), random_, contents)
        return number.to_bytes(2, "big") + changed

    def run(self, case: bytes) -> object:
        number = int.from_bytes(case[:2], "big")
        if len(case) < 2 or number >= len(self._places):
            return None
        return self.take(self._places[number][0], case[2:])

    @abstractmethod
    def take(self, place: Any, content: bytes) -> object:
        """Have the runner take the content of a field."""
