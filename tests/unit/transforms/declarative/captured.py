"""What callbacks of tests capture."""

import enum
import functools
import logging
import re
from collections import namedtuple
from collections.abc import Callable
from typing import Any

from apache_beam.coders import VarIntCoder

from beam_spark_runner.transforms import EventTimer, KeyedProcess, MapState, Shared, ValueState
from beam_spark_runner.transforms.declarative.captures import Judgement, examine
from tests.unit.transforms.declarative.running import Run

NUMBER = 3
NAMES = ("a", ("b", frozenset({1})))
CACHE: dict[str, int] = {}
LOGGER = logging.getLogger(__name__)
PATTERN = re.compile("a+")
Pair = namedtuple("Pair", "one other")
PAIR = Pair(1, "x")
LISTED = (1, [2])


class Colour(enum.Enum):
    RED = 1


class Config:
    limit = 5
    cache: dict[str, int] = {}  # noqa: RUF012


class Client:
    def get(self, key: Any) -> Any:
        return key

    @classmethod
    def make(cls, _: Any) -> "Client":
        return cls()


CLIENT = Client()


def double(value: int) -> int:
    return 2 * value


def looks_up(value: str) -> int | None:
    return CACHE.get(value)


def counts_down(value: int) -> int:
    return value if not value else ping(value - 1)


def ping(value: int) -> int:
    return counts_down(value)


def bad_ping(value: int) -> int:
    return bad_pong(value) if value else 0


def bad_pong(value: int) -> int:
    CACHE["x"] = value
    return bad_ping(value - 1)


def uses_process(process: Any) -> Any:
    return process.whatever


def logged(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any) -> Any:
        LOGGER.debug("called")
        return fn(*args)

    return wrapper


@logged
def decorated(value: int) -> int:
    return value


@logged
def decorated_badly(value: int) -> int:
    return CACHE.get("x", value)


@functools.cache
def cached(value: int) -> int:
    return value


def sets_global(value: int) -> None:
    global NUMBER
    NUMBER = value


class Base(KeyedProcess):
    state = ValueState("state", VarIntCoder())
    entries = MapState("entries", VarIntCoder(), VarIntCoder())
    timer = EventTimer("timer")
    table = Shared(dict)
    of_class = ("x", 1)
    list_of_class: list[int] = []  # noqa: RUF012
    client = CLIENT

    def __init__(self) -> None:
        self.limit = 7
        self.words = ("a", "b")
        self.cache: dict[Any, Any] = {}
        self.double = double

    def setup(self) -> None:
        self.made = 8

    def declare_on_event_time(self, ctx: Any) -> Any:
        return lambda _: None

    def declare_process(self, ctx: Any) -> Any:
        return lambda _: None

    def helper(self, value: Any) -> Any:
        return value + self.limit

    def bad_helper(self, value: Any) -> Any:
        return self.cache.get(value)

    def recurses(self, value: int) -> int:
        return self.recurses(value - 1) if value else self.limit

    def inherited(self, value: Any) -> Any:
        return self.cache

    def inherited_well(self, value: Any) -> Any:
        return self.limit

    @property
    def total(self) -> int:
        return self.limit + 1

    @property
    def bad_total(self) -> int:
        return len(self.cache)

    @functools.cached_property
    def lazily(self) -> int:
        return 1

    @staticmethod
    def static(value: Any) -> Any:
        return double(value)

    @staticmethod
    def bad_static(value: Any) -> Any:
        return looks_up(value)

    @classmethod
    def of_kind(cls, value: Any) -> Any:
        return cls.of_class, value


class Small(KeyedProcess):
    """All of it is safe, so it may be passed to any function."""

    state = ValueState("state", VarIntCoder())
    bound = 3

    def __init__(self) -> None:
        self.limit = 7

    def declare_process(self, ctx: Any) -> Any:
        return lambda _: CACHE

    def helper(self, value: Any) -> Any:
        return value + self.limit


class Extended(Base):
    def inherited(self, value: Any) -> Any:
        return super().inherited(value)

    def inherited_well(self, value: Any) -> Any:
        return super().inherited_well(value)


def examined(make: Callable[..., Any], kind: type = Extended) -> Judgement:
    run = Run(kind())
    run.declared.context._is_sealed = False
    callback = make(run.declared._process, run.declared.context)
    return examine(callback).judged_now()
