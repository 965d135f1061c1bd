"""The elements of a remote bundle whose input may be split."""

import threading
from collections.abc import Sequence

from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner.core.ids import TransformId


class InvalidSplitError(Exception):
    """An SDK has reported an impossible channel split."""


class PushedElements:
    """The elements that were pushed into a bundle whose input may be split. Threads: any.

    Args:
        descriptor: The descriptor of the stage.
        source: The transform through which the elements enter the stage.
    """

    def __init__(
        self, descriptor: beam_fn_api_pb2.ProcessBundleDescriptor, source: TransformId
    ) -> None:
        self._descriptor = descriptor
        (self._collection,) = descriptor.transforms[source].outputs.values()
        self._pushed: list[bytes] = []
        self._too_late: list[bytes] = []  # pushed after the input was split
        self._is_cut = False
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._pushed)

    def add(self, coded_element: bytes) -> bool:
        """Record an element; return False if the input was split, so that the SDK would drop it."""
        with self._lock:
            if self._is_cut:
                self._too_late.append(coded_element)
                return False
            self._pushed.append(coded_element)
            return True

    def cut(
        self, channel: beam_fn_api_pb2.ProcessBundleSplitResponse.ChannelSplit
    ) -> Sequence[beam_fn_api_pb2.DelayedBundleApplication]:
        """Return the elements that the SDK will not begin, as residuals.

        Raises:
            InvalidSplitError: The split is inconsistent with the pushed elements.
        """
        with self._lock:
            last, first = channel.last_primary_element, channel.first_residual_element
            # One element may lie between them: the one that was split, see residual_roots.
            if not (-1 <= last < first <= min(last + 2, len(self._pushed))):
                raise InvalidSplitError(
                    f"it reported that it keeps elements up to number {last} and returns those "
                    f"from {first} on, of {len(self._pushed)}"
                )
            not_begun = self._pushed[first:]
            del self._pushed[first:]
            self._is_cut = True
        return [*map(self._residual, not_begun)]

    def too_late(self) -> Sequence[beam_fn_api_pb2.DelayedBundleApplication]:
        """Return the elements that were pushed after the split, as residuals."""
        return [*map(self._residual, self._too_late)]

    def _residual(self, coded_element: bytes) -> beam_fn_api_pb2.DelayedBundleApplication:
        """Return an element as a residual of the step that consumes it."""
        (consumer,) = (
            (id_, tag)
            for id_, transform in self._descriptor.transforms.items()
            for tag, collection in transform.inputs.items()
            if collection == self._collection
        )
        return beam_fn_api_pb2.DelayedBundleApplication(
            application=beam_fn_api_pb2.BundleApplication(
                transform_id=consumer[0], input_id=consumer[1], element=coded_element
            )
        )
