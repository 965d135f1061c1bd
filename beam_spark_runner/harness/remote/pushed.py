"""The elements of a bundle of which an SDK harness may give some back."""

import threading
from collections.abc import Sequence

from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner.core.ids import TransformId


class WrongCutError(Exception):
    """The SDK says of a cut what cannot be."""


class PushedElements:
    """What was pushed into a bundle whose input may be cut. Threads: any.

    Args:
        descriptor: of the stage.
        source: through which elements come.
    """

    def __init__(
        self, descriptor: beam_fn_api_pb2.ProcessBundleDescriptor, source: TransformId
    ) -> None:
        self._descriptor = descriptor
        (self._collection,) = descriptor.transforms[source].outputs.values()
        self._pushed: list[bytes] = []
        self._too_late: list[bytes] = []  # pushed after the input was cut
        self._is_cut = False
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._pushed)

    def take(self, coded_element: bytes) -> bool:
        """Note an element. False: the input was cut, so that the SDK would drop it."""
        with self._lock:
            if self._is_cut:
                self._too_late.append(coded_element)
                return False
            self._pushed.append(coded_element)
            return True

    def cut(
        self, channel: beam_fn_api_pb2.ProcessBundleSplitResponse.ChannelSplit
    ) -> Sequence[beam_fn_api_pb2.DelayedBundleApplication]:
        """Return the elements that the SDK will not begin.

        Raises:
            WrongCutError: there is no such cut.
        """
        with self._lock:
            last, first = channel.last_primary_element, channel.first_residual_element
            # One element may lie between them: that which is in residual_roots, in part.
            if not (-1 <= last < first <= min(last + 2, len(self._pushed))):
                raise WrongCutError(
                    f"says that it keeps its elements up to number {last} and leaves those from "
                    f"{first} on, of {len(self._pushed)}"
                )
            not_begun = self._pushed[first:]
            del self._pushed[first:]
            self._is_cut = True
        return [*map(self._residual, not_begun)]

    def too_late(self) -> Sequence[beam_fn_api_pb2.DelayedBundleApplication]:
        """Return the elements that were pushed after the cut."""
        return [*map(self._residual, self._too_late)]

    def _residual(self, coded_element: bytes) -> beam_fn_api_pb2.DelayedBundleApplication:
        """Say of an element what an SDK says of a residual."""
        (consumer,) = (
            (id_, tag)
            for id_, each in self._descriptor.transforms.items()
            for tag, collection in each.inputs.items()
            if collection == self._collection
        )
        return beam_fn_api_pb2.DelayedBundleApplication(
            application=beam_fn_api_pb2.BundleApplication(
                transform_id=consumer[0], input_id=consumer[1], element=coded_element
            )
        )
