"""Checks the residuals that an SDK harness sends, before anything decodes or stores them."""

from collections.abc import Iterable

from apache_beam.coders import WindowedValueCoder
from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner.core.errors import FnApiProtocolError
from beam_spark_runner.harness.codec.blocks import BlockReader
from beam_spark_runner.portable.bounded import MalformedBytesError


class ResidualChecks:
    """Checks that the element of a residual is one encoded element, in at least one window.

    Args:
        coder: The coder of the stage's input, made by ``portable.wire``.
    """

    def __init__(self, coder: WindowedValueCoder) -> None:
        self._reader = BlockReader(coder)

    def check(self, roots: Iterable[beam_fn_api_pb2.DelayedBundleApplication]) -> None:
        """Check all residuals of a response.

        Raises:
            FnApiProtocolError: An element is cut off, has other bytes, or is in no window.
        """
        for root in roots:
            application = root.application
            try:
                self._check(application.element)
            except MalformedBytesError as error:
                raise FnApiProtocolError(
                    f"the SDK harness sent a residual of {application.transform_id!r} whose "
                    f"element is malformed: {error}"
                ) from error

    def _check(self, element: bytes) -> None:
        origins = [origin for _, some in self._reader.read(element) for origin in some]
        if len(origins) != 1:
            raise MalformedBytesError(f"there are {len(origins)} elements in place of one")
        if not origins[0].windows:
            raise MalformedBytesError("it is in no window, so that its rest would be lost")
