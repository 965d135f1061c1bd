"""Refuses coders that contain themselves, or that are too large to be walked as a tree."""

from collections.abc import Iterable, Iterator, Mapping

from beam_spark_runner.core.errors import InvalidPipelineError
from beam_spark_runner.core.ids import CoderId
from beam_spark_runner.graph.model import Coder

MAX_NESTED = 100
"""How deep coders may nest. Beam builds coders by recursion, three frames of Python a level, and
Python allows 1,000 frames. As deep as messages of protobuf may nest."""
MAX_PARTS = 10_000
"""The most parts of a coder, each counted as often as it occurs. Beam's coders, which know nothing
of shared parts, walk all of them to compare, hash or print themselves: some milliseconds for so
many. Coders of real pipelines have some hundred; fields of a row are not among them."""


class CoderGraphs:
    """Checks the coders of one graph; linear in their number, whatever they share.

    Args:
        coders: The coders of the graph.
    """

    def __init__(self, coders: Mapping[CoderId, Coder]) -> None:
        self._coders = coders
        self._parts: dict[CoderId, int] = {}  # of the coders that are sound
        self._depths: dict[CoderId, int] = {}

    def check(self, ids: Iterable[CoderId], where: str) -> None:
        """Check coders, and all that they consist of.

        Args:
            ids: The ids of the coders.
            where: The step that uses them, for the error.

        Raises:
            InvalidPipelineError: A coder does not exist, contains itself or is too large.
        """
        for id_ in ids:
            self._check(id_, where)

    def check_unused(self) -> None:
        """Check the coders that no step uses, but not whether all of their components exist.

        Raises:
            InvalidPipelineError: A coder contains itself or is too large.
        """
        for id_ in self._coders:
            self._check(id_, f"the coder {id_}", may_dangle=True)

    def _check(self, root: CoderId, where: str, *, may_dangle: bool = False) -> None:
        entered: dict[CoderId, Iterator[CoderId]] = {}  # those that contain the current one
        pending: list[CoderId] = [root]
        while pending:
            id_ = pending[-1]
            if id_ in self._parts:
                pending.pop()
                continue
            if id_ not in entered:
                if id_ not in self._coders:
                    if not may_dangle:
                        raise InvalidPipelineError(f"the coder {id_} is missing", where)
                    pending.pop()
                    continue
                entered[id_] = iter(self._coders[id_].components)
            part = next(entered[id_], None)
            if part is None:
                del entered[id_]
                self._measure(id_, where)
                pending.pop()
            elif part in entered:
                raise InvalidPipelineError(f"the coder {part} contains itself", where)
            else:
                pending.append(part)

    def _measure(self, id_: CoderId, where: str) -> None:
        """Compute the size of a coder from those of its components, which are sound."""
        components = self._coders[id_].components
        depth = 1 + max((self._depths.get(component, 0) for component in components), default=0)
        parts = 1 + sum(self._parts.get(component, 0) for component in components)
        if depth > MAX_NESTED:
            raise InvalidPipelineError(
                f"the coder {id_} nests coders more than {MAX_NESTED} deep", where
            )
        if parts > MAX_PARTS:
            raise InvalidPipelineError(
                f"the coder {id_} has {parts:,} parts, counted as often as they occur in it; at "
                f"most {MAX_PARTS:,} are supported",
                where,
            )
        self._depths[id_], self._parts[id_] = depth, parts
