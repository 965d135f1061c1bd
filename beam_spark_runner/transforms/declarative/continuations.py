"""The callbacks that wait for a read, by their names, so that another process continues with them.

For harnesses that have this package; the classes of steps may be copies that were pickled by value.

Usage::

    continuations = Continuations(fn.declared, step)    # after setup, before the first record
    snapshot = continuations.snapshot()                 # valid until code of users runs
    tree = snapshot.tree_of(future)                     # None: the read has to be executed here
    coded = encoded(tree)
    ...                                                 # in another process, with a record's code:
    continuations.attach(decoded(coded), future)        # of the same read, which was made again

A *tree* is a tuple of ``Node``: the nodes that wait for the future, each followed by those that
wait for its result. Chains may be very long, so there is no recursion, neither here nor in JSON.
"""

import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from beam_spark_runner.transforms.declarative.captures import Examined, Judgement, examine
from beam_spark_runner.transforms.declarative.futures import passed_on, waiting_for
from beam_spark_runner.transforms.declarative.named import DeclarationError
from beam_spark_runner.transforms.declarative.waiting_callbacks import (
    BRANCH,
    FALSE,
    FORWARD,
    TRUE,
    Described,
    Kind,
)

_LOGGER = logging.getLogger(__name__)
_KINDS = {kind.value for kind in Kind}


class Node(NamedTuple):
    """What waits for the result of a future.

    Attributes:
        kind: See ``waiting_callbacks.Described``.
        names: The names of its callbacks; None: that of a branch that is missing.
        times: How many follow each other; 1, or more of those that only pass a result.
        following: How many nodes wait for its result.
    """

    kind: str
    names: tuple[str | None, ...]
    times: int
    following: int


Tree = tuple[Node, ...]


class _Declared(Protocol):
    """See ``keyed_process.DeclaredProcess``."""

    @property
    def callbacks(self) -> Mapping[str, Any]: ...


def names_in_tree(tree: Tree) -> Iterator[str]:
    """Yield the names of the callbacks of a tree, some perhaps several times."""
    for node in tree:
        yield from (name for name in node.names if name is not None)


def encoded(tree: Tree) -> bytes:
    """Return a tree as bytes."""
    return json.dumps(tree, separators=(",", ":")).encode()


def decoded(coded: bytes) -> Tree:
    """Return the tree of ``encoded``."""
    return tuple(
        Node(kind, tuple(names), times, following)
        for kind, names, times, following in json.loads(coded)
    )


class Continuations:
    """The continuations of a step's reads.

    The captures of all its callbacks are examined at once, before records can change them.

    Args:
        declared: What the process of the step has declared, after its ``setup``.
        step: The name of the step, for warnings.
    """

    def __init__(self, declared: _Declared, step: str) -> None:
        self._step = step
        self._callbacks = declared.callbacks
        self._examined = {named.name: examine(named.fn) for named in self._callbacks.values()}
        self._used = {name: self._used_by(name) for name in self._examined}
        self._warned: set[str] = set()

    def snapshot(self) -> "Snapshot":
        """Return what finds trees now. It is valid until code of users runs."""
        return Snapshot(self._callbacks, self._examined, self._used, self._warn)

    def attach(self, tree: Tree, future: Any) -> None:
        """Add the callbacks of a tree to a future, in their order.

        Args:
            tree: The tree. Callbacks may have other names meanwhile, if they are declared with
                ``was``.
            future: A future of the record that the step's machine processes.

        Raises:
            DeclarationError: A callback is not declared.
        """
        parents = [[future, len(tree)]]  # futures, with the number of nodes that come to each
        for node in tree:
            while not parents[-1][1]:
                parents.pop()
            parents[-1][1] -= 1
            parents.append([self._added(node, parents[-1][0]), node.following])

    def _used_by(self, name: str) -> Collection[str]:
        """Return the names of a callback and of all that it uses, directly or not."""
        used: dict[str, None] = {}
        left = [name]
        while left:
            each = left.pop()
            if each not in used and each in self._examined:
                used[each] = None
                left += self._examined[each].callbacks
        return used

    def _added(self, node: Node, future: Any) -> Any:
        """Add a node to a future, and return the future of its result."""
        if node.kind in (FORWARD, TRUE, FALSE):
            for _ in range(node.times):
                future = passed_on(future, node.kind)
            return future
        kind = node.kind.removesuffix(BRANCH)
        if kind not in _KINDS:
            raise ValueError(f"a tree of callbacks has a node of an unknown kind: {node!r}")
        method = f"then_{kind}" if kind == node.kind else f"then_conditionally_{kind}"
        return getattr(future, method)(*map(self._named, node.names))

    def _named(self, name: str | None) -> Any:
        if name is None:
            return None
        if name not in self._callbacks:
            raise DeclarationError(
                f"a stored request continues with the callback {name!r}, which {self._step} does "
                "not declare: declare it, or give its new name with was="
            )
        return self._callbacks[name]

    def _warn(self, name: str, judgement: Judgement) -> None:
        if name not in self._warned:
            self._warned.add(name)
            _LOGGER.warning(
                "%s: reads that the callback %r waits for, or one that uses it, are finished "
                "before each commit, and not stored, since it uses %s: %s",
                *(self._step, name, judgement.capture, judgement.why),
            )


class Snapshot:
    """Finds the trees of reads as long as no code of users runs. See ``Continuations.snapshot``.

    Args:
        callbacks: The declared callbacks, by name.
        examined: Their captures, by name.
        used: The names of each callback and of all that it uses, by its name.
        warn: Called with the name of each callback whose captures are not safe, and why.
    """

    def __init__(
        self,
        callbacks: Mapping[str, Any],
        examined: Mapping[str, Examined],
        used: Mapping[str, Collection[str]],
        warn: Callable[[str, Judgement], None],
    ) -> None:
        self._callbacks, self._examined, self._used = callbacks, examined, used
        self._warn = warn
        self._own: dict[str, Judgement] = {}  # without those of the callbacks that it uses
        self._are_safe: dict[str, bool] = {}

    def tree_of(self, future: Any) -> Tree | None:
        """Return all that waits for a read, directly or not.

        Args:
            future: The future of the read, which is not complete.

        Returns:
            The tree; None: another process cannot continue, since something that waits also
            depends on other futures, or is a callback that is not declared or not safe.
        """
        nodes = []
        left = waiting_for(future)[::-1]
        while left:
            described: Described | None = left.pop().described()
            if described is None:
                return None
            kind, callbacks, result = described
            if not all(map(self._is_safe, callbacks)):
                return None
            names = tuple(None if each is None else each.name for each in callbacks)
            times = 1
            while kind == FORWARD and (further := _only_forward(result)) is not None:
                times, result = times + 1, further
            following = waiting_for(result)
            nodes.append(Node(kind, names, times, len(following)))
            left += following[::-1]
        return tuple(nodes)

    def _is_safe(self, callback: Any) -> bool:
        if callback is None:
            return True
        if not getattr(type(callback), "is_named_callback", False):
            return False
        name = callback.name
        if self._callbacks.get(name) is not callback:
            return False
        if name not in self._are_safe:
            self._are_safe[name] = all(self._has_safe_captures(each) for each in self._used[name])
        return self._are_safe[name]

    def _has_safe_captures(self, name: str) -> bool:
        judgement = self._own.get(name)
        if judgement is None:
            judgement = self._own[name] = self._examined[name].judged_now()
            if not judgement.is_safe:
                self._warn(name, judgement)
        return judgement.is_safe


def _only_forward(future: Any) -> Any:
    """Return the future to which the result of a future is passed, if nothing else waits for it."""
    waiting = waiting_for(future)
    if len(waiting) != 1:
        return None
    described = waiting[0].described()
    return described.result if described is not None and described.kind == FORWARD else None
