"""What callbacks must not use if another process is to continue with them."""

import functools
import math
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.transforms.declarative import captured
from tests.unit.transforms.declarative.captured import (
    CACHE,
    CLIENT,
    LISTED,
    Client,
    Config,
    bad_ping,
    cached,
    decorated_badly,
    examined,
    looks_up,
    sets_global,
    uses_process,
)


def _unsafe() -> dict[str, tuple[str, Callable[..., Any]]]:
    """Return what the captures of unsafe callbacks are called, and functions as above."""
    cache: list[int] = []
    client = Client()
    nested = (1, {"x": 2})
    generator = (each for each in (1, 2))
    count = 0

    def inner(value: Any) -> None:
        cache.append(value)

    def kept(value: Any) -> Any:
        return value

    kept.found = []  # type: ignore[attr-defined]

    def adds(value: Any) -> None:
        nonlocal count
        count += value

    if count:
        later = 1

    def has_none(value: Any) -> Any:
        return later, value

    return {
        "a list of a closure": ("cache", lambda s, c: lambda x: cache.append(x)),
        "a method of a list": ("list.append", lambda s, c: cache.append),
        "an object of a closure": ("client", lambda s, c: lambda x: client.get(x)),
        "a method of an object": ("Client.get", lambda s, c: client.get),
        "an object that is called": ("it", lambda s, c: _Called()),
        "a dict in a tuple": ("nested", lambda s, c: lambda x: nested[x]),
        "a generator": ("generator", lambda s, c: lambda x: next(generator)),
        "a variable of a closure that it sets": ("count", lambda s, c: adds),
        "a variable without a value": ("later", lambda s, c: has_none),
        "a global dict": ("CACHE", lambda s, c: lambda x: CACHE[x]),
        "a global object": ("CLIENT", lambda s, c: lambda x: CLIENT.get(x)),
        "a list in a global tuple": ("LISTED", lambda s, c: lambda x: LISTED),
        "a global variable that it sets": ("NUMBER", lambda s, c: sets_global),
        "one without a value": ("MISSING", lambda s, c: lambda x: MISSING),  # type: ignore[name-defined] # noqa: F821
        "a function that is not safe": ("CACHE", lambda s, c: looks_up),
        "one that is called": ("CACHE", lambda s, c: lambda x: looks_up(x)),
        "functions that call each other": ("CACHE", lambda s, c: bad_ping),
        "a function of a closure": ("cache", lambda s, c: lambda x: inner(x)),
        "a decorated function": ("CACHE", lambda s, c: decorated_badly),
        "a function with a cache": ("cached", lambda s, c: lambda x: cached(x)),
        "a partial": ("it", lambda s, c: functools.partial(len, cache)),
        "a partial of a function": ("CACHE", lambda s, c: functools.partial(looks_up)),
        "one with an argument by name": (
            "it",
            lambda s, c: functools.partial(dict, x=cache),
        ),
        "a default": ("into", lambda s, c: lambda x, into=cache: into.append(x)),
        "a default by name": ("into", lambda s, c: _with_default),
        "a comprehension": ("cache", lambda s, c: lambda x: [each in cache for each in x]),
        "a generator that it defines": ("CACHE", lambda s, c: lambda x: (CACHE[y] for y in x)),
        "a function that it defines": ("CACHE", lambda s, c: lambda x: lambda: CACHE),
        "a function two levels deep": ("cache", lambda s, c: lambda x: lambda: lambda: cache),
        "a class that it defines": ("CACHE", lambda s, c: _defines_badly),
        "a dict of a class": ("Config.cache", lambda s, c: lambda x: Config.cache[x]),
        "a dict of a module": ("captured.CACHE", lambda s, c: lambda x: captured.CACHE[x]),
        "a list of a function": ("kept.found", lambda s, c: lambda x: kept.found.append(x)),  # type: ignore[attr-defined]
        "eval": ("eval", lambda s, c: lambda x: eval(x)),
        "globals": ("globals", lambda s, c: lambda x: globals()[x]),
        "an attribute of a class that it sets": ("Config.limit", lambda s, c: _sets_class),
        "an attribute of a module that it sets": ("math.pi", lambda s, c: _sets_module),
        "an attribute": ("s.cache", lambda s, c: lambda x: s.cache[x]),
        "a list of the class": ("s.list_of_class", lambda s, c: lambda x: s.list_of_class),
        "an object of the class": ("s.client", lambda s, c: lambda x: s.client.get(x)),
        "an attribute that it sets": ("s.limit", lambda s, c: _setter(s)),
        "one that it increases": ("s.limit", lambda s, c: _adder(s)),
        "one that it deletes": ("s.limit", lambda s, c: _deleter(s)),
        "an attribute without a value": ("s.nothing", lambda s, c: lambda x: s.nothing),
        "one in a comprehension": ("s.cache", lambda s, c: lambda x: [s.cache[y] for y in x]),
        "one in a function": ("s.cache", lambda s, c: lambda x: lambda: s.cache),
        "a method": ("self.cache", lambda s, c: s.bad_helper),
        "a method that is called": ("self.cache", lambda s, c: lambda x: s.bad_helper(x)),
        "a property": ("self.cache", lambda s, c: lambda x: s.bad_total),
        "a cached property": ("s.lazily", lambda s, c: lambda x: s.lazily),
        "a static method": ("CACHE", lambda s, c: lambda x: s.bad_static(x)),
        "an inherited method": ("self.cache", lambda s, c: s.inherited),
        "the process as an argument": ("s.cache", lambda s, c: lambda x: uses_process(s)),
        "getattr": ("s.cache", lambda s, c: lambda x: getattr(s, x)),
        "the process under another name": ("s.cache", lambda s, c: _renamer(s)),
        "a tuple with the process": ("pair.cache", lambda s, c: _captures((1, s))),
        "all attributes": ("s.__dict__.cache", lambda s, c: lambda x: s.__dict__),
    }


class _Called:
    def __call__(self, value: Any) -> Any:
        return value


def _with_default(value: Any, *, into: Any = CACHE) -> Any:
    return into


def _captures(pair: Any) -> Callable[[Any], Any]:
    return lambda x: pair


def _defines_badly(value: Any) -> Any:
    class Local:
        found = CACHE

    return Local


def _sets_class(value: int) -> None:
    Config.limit = value


def _sets_module(value: float) -> None:
    math.pi = value  # type: ignore[misc]


def _setter(s: Any) -> Callable[[Any], Any]:
    def callback(value: Any) -> None:
        s.limit = value

    return callback


def _adder(s: Any) -> Callable[[Any], Any]:
    def callback(value: Any) -> None:
        s.limit += value

    return callback


def _deleter(s: Any) -> Callable[[Any], Any]:
    def callback(_: Any) -> None:
        del s.limit

    return callback


def _renamer(s: Any) -> Callable[[Any], Any]:
    def callback(_: Any) -> Any:
        same = s
        return same.limit

    return callback


@pytest.mark.parametrize(
    ("capture", "make"), [pytest.param(*case, id=id_) for id_, case in _unsafe().items()]
)
def test_what_is_not_safe(capture: str, make: Callable[..., Any]) -> None:
    judgement = examined(make)
    assert not judgement.is_safe
    assert judgement.capture == capture
    assert judgement.why
