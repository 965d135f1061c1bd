"""Base class of readers: assigns errors of coders to steps."""

import abc
import copy
from typing import Any, NamedTuple, cast

from apache_beam.coders import WindowedValueCoder
from apache_beam.utils.windowed_value import (
    WindowedValue,
)

from beam_spark_runner.core.errors import RunnerError
from beam_spark_runner.core.rendering import render_error, short_text_of, text_of
from beam_spark_runner.engine.program import Edge
from beam_spark_runner.engine.rows.cursor import RowCursor
from beam_spark_runner.engine.rows.joined_keys import split_key
from beam_spark_runner.harness.bundle import BundleInput, StoringInput
from beam_spark_runner.harness.failures import failure_of, is_charged
from beam_spark_runner.harness.grouping.long_windows import MergeAccumulators
from beam_spark_runner.plan.model import Delivery
from beam_spark_runner.semantics.interruption import Interruption
from beam_spark_runner.semantics.lateness import LateElements
from beam_spark_runner.semantics.timers import Instant
from beam_spark_runner.state.store import StoredState


class StageEpoch(NamedTuple):
    """The store and the times of a stage that stores keys, in an epoch.

    Attributes:
        store: the store of the stage.
        before: the watermark of its input and the processing time after the previous epoch.
        now: the same after this epoch.
        late: counts the late elements that are dropped.
        merge: see ``GroupsInEpochs``.
        interruption: see ``GroupsInEpochs``.
    """

    store: StoredState
    before: Instant
    now: Instant
    late: LateElements
    merge: MergeAccumulators | None = None
    interruption: Interruption | None = None

    @property
    def remote_store(self) -> StoredState | None:
        """The store, if reading a key takes a round trip."""
        return self.store if self.store.is_remote else None


class DecodingError(Exception):
    """The coder cannot decode a row."""


class _Input:
    """Passes calls on to the input of a bundle, and stores the exception that one has raised."""

    def __init__(self, bundle: BundleInput) -> None:
        self._bundle = bundle
        self._push = bundle.push
        self.raised: BaseException | None = None

    def push(self, values: list[Any], origins: list[WindowedValue]) -> None:
        try:
            self._push(values, origins)
        except BaseException as error:
            self.raised = error
            raise

    def flush(self) -> None:
        try:
            self._bundle.flush()
        except BaseException as error:
            self.raised = error
            raise

    def advance_key(self) -> None:
        try:
            self._bundle.advance_key()
        except BaseException as error:
            self.raised = error
            raise

    def begin_key(self, key: bytes) -> None:
        try:
            cast("StoringInput", self._bundle).begin_key(key)
        except BaseException as error:
            self.raised = error
            raise

    def advance_key_until(self, hold_us: int) -> None:
        try:
            cast("StoringInput", self._bundle).advance_key_until(hold_us)
        except BaseException as error:
            self.raised = error
            raise


class Reader(abc.ABC):
    """Turns rows of one edge into elements, and pushes them into the bundle.

    Attributes:
        _bundle: the only object by which a reader may push, so that errors of coders and those of
            the bundle can be distinguished.
    """

    def __init__(self, edge: Edge, coder: WindowedValueCoder, bundle: BundleInput) -> None:
        self._edge = edge
        self._coder = coder
        self._bundle = _Input(bundle)

    def read(self, cursor: RowCursor) -> None:
        """Read the run of rows at the cursor; a reader of groups reads the last one to its end.

        Raises:
            BundleFailedError: a row cannot be decoded. Errors of ``push``, of the disk that values
                are spilled to, and of an abandoned task are raised unchanged.
        """
        try:
            self._read(cursor)
        except Exception as error:
            if (
                error is self._bundle.raised
                or is_charged(error)
                or isinstance(error, RunnerError | OSError)
            ):
                raise
            # The message is Beam's.
            undecodable = DecodingError(
                f"Error decoding input stream with coder {text_of(self._coder)} in step "
                f"{self._edge.name}: {render_error(error).cause}"
            )
            undecodable.__cause__ = error
            raise failure_of(undecodable, self._edge.name) from error
        finally:
            self._bundle.raised = None  # its traceback refers to this reader and its rows

    def text_of_key(self, column: bytes) -> str:
        """Return the key of a row as text, for people. Threads: any.

        Args:
            column: The bytes of the row's column.
        """
        try:
            edge, coded = self._edge, column
            if edge.delivery is Delivery.GROUP_BY_KEY and not (
                edge.is_global or edge.coded_windowing
            ):
                coded, _ = split_key(column)
            # A copy: the task decodes meanwhile, and a user's coder may have a buffer.
            coder = copy.deepcopy(self._coder.wrapped_value_coder.key_coder()).get_impl()
            return short_text_of(
                coder.decode_nested(coded) if edge.key_groups else coder.decode(coded)
            )
        except Exception as error:  # of a user's coder, or there is no such key
            if is_charged(error):  # the task is interrupted
                raise
            return short_text_of(column)

    @abc.abstractmethod
    def _read(self, cursor: RowCursor) -> None: ...
