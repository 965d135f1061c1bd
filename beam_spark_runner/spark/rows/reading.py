"""What all readers have in common: errors of coders, and how many elements are pushed at once."""

import abc
import inspect
import traceback
from typing import Any

from apache_beam.coders import WindowedValueCoder
from apache_beam.utils.windowed_value import (
    WindowedValue,
)

from beam_spark_runner.core import mapping
from beam_spark_runner.core.rendering import render_error, text_of
from beam_spark_runner.harness.bundle import BundleInput
from beam_spark_runner.harness.failures import failure_of
from beam_spark_runner.harness.values import opaque
from beam_spark_runner.spark.program import Edge
from beam_spark_runner.spark.rows.cursor import RowCursor

_CODERS = ("apache_beam/coders/", *map(inspect.getfile, (mapping, opaque)))
"""Parts of the paths of files in which coders run; the last two only call them."""
_CHUNK_VALUES = 128
_CHUNK_BYTES = 1 << 20


class DecodingError(Exception):
    """The coder does not take the bytes that it gave."""


class Reader(abc.ABC):
    """Turns rows of one edge into elements, and pushes them into the bundle."""

    def __init__(self, edge: Edge, coder: WindowedValueCoder, bundle: BundleInput) -> None:
        self._edge = edge
        self._coder = coder
        self._bundle = bundle

    def read(self, cursor: RowCursor) -> None:
        """Take the run of rows at the cursor; a reader of groups goes on to the last one's end.

        Raises:
            BundleFailedError: a row cannot be decoded. What ``push`` raises passes.
        """
        try:
            self._read(cursor)
        except Exception as error:
            if not _comes_from_a_coder(error, self):
                raise
            # Beam's words.
            told = DecodingError(
                f"Error decoding input stream with coder {text_of(self._coder)} in step "
                f"{self._edge.name}: {render_error(error).cause}"
            )
            told.__cause__ = error
            raise failure_of(told, self._edge.name) from error

    @abc.abstractmethod
    def _read(self, cursor: RowCursor) -> None: ...


def _comes_from_a_coder(error: Exception, reader: Reader) -> bool:
    """Whether a reader called a coder that raised; else it is what ``push`` runs."""
    readers = {inspect.getfile(each) for each in type(reader).__mro__ if issubclass(each, Reader)}
    called = (
        frame.f_code.co_filename
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename not in readers
    )
    file = next(called, "")
    return any(part in file for part in _CODERS)


class Chunks:
    """Elements on their way to the bundle, some at a time; no more than a megabyte of rows."""

    def __init__(self, bundle: BundleInput) -> None:
        self._bundle = bundle
        self._values: list[Any] = []
        self._origins: list[WindowedValue] = []
        self._room = _CHUNK_BYTES

    def add(self, value: Any, origin: WindowedValue, size: int) -> None:
        """Take one element that was made of ``size`` bytes."""
        self._values.append(value)
        self._origins.append(origin)
        self._room -= size
        if self._room < 0 or len(self._values) >= _CHUNK_VALUES:
            self.push()

    def push(self) -> None:
        """Push what was taken."""
        if self._values:
            values, origins = self._values, self._origins
            self._values, self._origins, self._room = [], [], _CHUNK_BYTES
            self._bundle.push(values, origins)


def per_chunk(coded: list[bytes]) -> int:
    """How many of these values to take at once."""
    return max(1, min(_CHUNK_VALUES, _CHUNK_BYTES * len(coded) // (1 + sum(map(len, coded)))))
