"""Callbacks of bundle finalization that an SDK harness holds."""

import logging

from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner.harness.remote.sdk_harness import ConnectedHarness
from beam_spark_runner.harness.remote.sdk_harnesses import sdk_harnesses

_LOGGER = logging.getLogger(__name__)


class RemoteCallbacks:
    """See ``Callbacks``. The SDK harness holds them, and is not ended before they run or drop."""

    def __init__(self, name: str, instruction: str, worker: ConnectedHarness) -> None:
        self._name = name
        self._instruction = instruction
        self._worker = worker

    def run(self) -> None:
        """See ``Callbacks.run``."""
        try:
            answer = self._worker.connection.ask(
                beam_fn_api_pb2.InstructionRequest(
                    finalize_bundle=beam_fn_api_pb2.FinalizeBundleRequest(
                        instruction_id=self._instruction
                    )
                )
            )
        finally:
            self.drop()
        if answer is None or answer.error:
            problem = "the SDK harness has ended" if answer is None else answer.error
            _LOGGER.warning("%s: callbacks of a bundle did not run: %s", self._name, problem)

    def drop(self) -> None:
        """See ``Callbacks.drop``."""
        sdk_harnesses.release(self._worker)
