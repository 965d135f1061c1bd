"""Chains of callbacks that are declared together.

Pickled by value (see ``declarative``).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from typing_extensions import override

from beam_spark_runner.transforms.declarative.futures import StateFuture
from beam_spark_runner.transforms.declarative.named import (
    CALLBACK,
    DeclarationError,
    Named,
    called,
    check_takes,
    checked_name,
    names_in,
)
from beam_spark_runner.transforms.declarative.returned import check_future

_SUFFIXES = ("", "/true", "/false")  # of the names of a condition and its branches
_IF_FALSE = 2  # the place of the only callback that may be missing


class _Declares(Protocol):
    def declare(
        self,
        name: str | Callable[..., Any],
        fn: Callable[..., Any] | None = None,
        *,
        was: Sequence[str] = (),
    ) -> Named: ...


class _Link(NamedTuple):
    """A stage as it is applied to a future: the method of the future, and its callbacks."""

    method: str
    callbacks: Sequence[Callable[..., Any] | None]


class DeclarationStage:
    """The last stage of a chain so far. ``DeclarationContext.declare_chain`` begins a chain.

    Each ``then_…`` adds a stage, as the method of ``StateFuture`` with this name adds a callback.
    ``with_name`` names the stage that was added last; others get an automatic name.
    """

    def __init__(
        self,
        context: _Declares,
        first: Callable[[Any], StateFuture],
        links: Sequence[_Link] = (),
        method: str = "",
        callbacks: Sequence[Callable[..., Any] | None] = (),
    ) -> None:
        self._context = context
        self._first = first
        self._links = links  # of the previous stages
        self._method = method  # empty: the first stage
        self._callbacks = callbacks
        self._is_named = self._is_continued = False
        self._next: DeclarationStage | None = None

    def then_apply(self, fn: Callable[[Any], Any]) -> "DeclarationStage":
        """See ``StateFuture.then_apply``."""
        return self._then("then_apply", fn)

    def then_accept(self, fn: Callable[[Any], Any]) -> "DeclarationStage":
        """See ``StateFuture.then_accept``."""
        return self._then("then_accept", fn)

    def then_compose(self, fn: Callable[[Any], StateFuture]) -> "DeclarationStage":
        """See ``StateFuture.then_compose``."""
        return self._then("then_compose", fn)

    def then_conditionally_apply(
        self,
        condition: Callable[[Any], Any],
        if_true: Callable[[Any], Any],
        if_false: Callable[[Any], Any] | None = None,
    ) -> "DeclarationStage":
        """See ``StateFuture.then_conditionally_apply``."""
        return self._then("then_conditionally_apply", condition, if_true, if_false)

    def then_conditionally_accept(
        self,
        condition: Callable[[Any], Any],
        if_true: Callable[[Any], Any],
        if_false: Callable[[Any], Any] | None = None,
    ) -> "DeclarationStage":
        """See ``StateFuture.then_conditionally_accept``."""
        return self._then("then_conditionally_accept", condition, if_true, if_false)

    def then_conditionally_compose(
        self,
        condition: Callable[[Any], Any],
        if_true: Callable[[Any], StateFuture],
        if_false: Callable[[Any], StateFuture] | None = None,
    ) -> "DeclarationStage":
        """See ``StateFuture.then_conditionally_compose``."""
        return self._then("then_conditionally_compose", condition, if_true, if_false)

    def with_name(self, name: str, *, was: Sequence[str] = ()) -> "DeclarationStage":
        """Name the stage.

        Args:
            name: The name of its callback. A conditional stage has several: ``name`` is that of the
                condition, ``name/true`` and ``name/false`` are those of the branches. Those that
                are declared already keep their names.
            was: The stage's names in earlier versions of the pipeline.

        Raises:
            DeclarationError: The stage has a name, is continued, is the first one, which has no
                callback, or its name is declared already or not allowed.
        """
        checked_name(name, CALLBACK)
        if not self._method:
            raise DeclarationError(f"the first code of a chain has no name, so not {name!r}")
        if self._is_continued:
            raise DeclarationError(f"{name!r} names a stage of a chain that is continued already")
        if self._is_named or self._is_declared():
            raise DeclarationError(f"a stage of a chain is named twice: {name!r} is the second")
        self._declare(name, was)
        return self

    def finish(self) -> Callable[[Any], StateFuture]:
        """Finish the chain.

        Returns:
            A function of the record, or of the value with which the chain begins, which returns the
            future of the last stage.

        Raises:
            DeclarationError: The stage is continued or finished already.
        """
        links = tuple(self._end())  # cannot be changed: see ``captures``
        first = self._first

        def chain(element: Any) -> StateFuture:
            future = called(first, element)
            check_future(future, "the first code of a chain", first)
            for method, callbacks in links:
                future = getattr(future, method)(*callbacks)
            result: StateFuture = future
            return result

        return chain

    def check_finished(self) -> None:
        """Check that the chain that begins with this stage is finished.

        Raises:
            DeclarationError: It is not.
        """
        stage = self
        while stage._next is not None:
            stage = stage._next
        if not stage._is_continued:
            raise DeclarationError(f"the chain that ends with {stage!r} is not finished")

    @override
    def __repr__(self) -> str:
        if not self._method:
            return "its first code"
        named = self._callbacks[0]
        return f"{named.name!r}" if isinstance(named, Named) else f".{self._method}(…)"

    def _then(self, method: str, *callbacks: Callable[..., Any] | None) -> "DeclarationStage":
        for number, callback in enumerate(callbacks):
            if isinstance(callback, DeclarationStage):
                raise DeclarationError(f"a chain must be finished before it is used in .{method}")
            if callback is None and number == _IF_FALSE:
                continue
            check_takes(callback, f"a callback of .{method}", 1)
        links = self._end()
        self._next = DeclarationStage(self._context, self._first, links, method, callbacks)
        return self._next

    def _end(self) -> Sequence[_Link]:
        if self._is_continued:
            raise DeclarationError(f"a stage of a chain is continued twice: {self!r}")
        self._is_continued = True
        if not self._method:
            return self._links
        if not self._is_named:
            self._declare(None, ())
        return [*self._links, _Link(self._method, self._callbacks)]

    def _is_declared(self) -> bool:
        return all(each is None or isinstance(each, Named) for each in self._callbacks)

    def _declare(self, name: str | None, was: Sequence[str]) -> None:
        self._is_named = True
        declared = []
        for suffix, callback in zip(_SUFFIXES, self._callbacks, strict=False):
            if callback is None or isinstance(callback, Named):
                declared.append(callback)
            elif name is None:
                declared.append(self._context.declare(callback))
            else:
                earlier = tuple(each + suffix for each in names_in(was))
                declared.append(self._context.declare(name + suffix, callback, was=earlier))
        self._callbacks = tuple(declared)
