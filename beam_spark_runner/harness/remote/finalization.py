"""Callbacks of bundle finalization that an SDK harness holds."""

import logging

from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner.harness.remote.sdk_harness import ConnectedHarness
from beam_spark_runner.harness.remote.sdk_harnesses import sdk_harnesses

_LOGGER = logging.getLogger(__name__)
_ANSWERS_WITHIN_S = 300.0
"""The longest wait for callbacks. They run one after another, in a thread that also learns of the
end of the job, so that a harness is waited for once."""


class RemoteCallbacks:
    """See ``Callbacks``. The SDK harness holds them, and is not ended before they run or drop."""

    def __init__(self, name: str, instruction: str, worker: ConnectedHarness) -> None:
        self._name = name
        self._instruction = instruction
        self._worker = worker

    def run(self) -> None:
        """See ``Callbacks.run``."""
        worker = self._worker
        timeout_s = _ANSWERS_WITHIN_S if worker.answers_finalization else 0.0
        try:
            answer = worker.connection.ask(
                beam_fn_api_pb2.InstructionRequest(
                    finalize_bundle=beam_fn_api_pb2.FinalizeBundleRequest(
                        instruction_id=self._instruction
                    )
                ),
                timeout_s,
            )
        finally:
            self.drop()
        if answer is not None and not answer.error:
            return
        if answer is not None:
            problem = f"did not run: {answer.error}"
        elif worker.connection.error is not None:
            problem = f"did not run: {worker.subject} has ended"
        elif timeout_s:
            worker.answers_finalization = False
            problem = f"have not returned within {timeout_s:g} s in {worker.subject}"
        else:
            problem = f"were not waited for: {worker.subject} has not answered to earlier ones"
        _LOGGER.warning("%s: callbacks of a bundle %s", self._name, problem)

    def drop(self) -> None:
        """See ``Callbacks.drop``."""
        sdk_harnesses.release(self._worker)
