"""All streams between this process and one SDK harness."""

import contextlib
import queue
import secrets
import threading
import time
from typing import Any

from apache_beam.portability.api import (
    beam_fn_api_pb2,
    beam_provision_api_pb2,
)

from beam_spark_runner.core.errors import FnApiProtocolError, RunnerError
from beam_spark_runner.harness.fn_api.protocol import Lost, Responded
from beam_spark_runner.harness.fn_api.services.control_service import ControlStream
from beam_spark_runner.harness.fn_api.services.data_service import DataStream
from beam_spark_runner.harness.fn_api.services.inbox import Inbox
from beam_spark_runner.harness.fn_api.services.instructions import InstructionIds
from beam_spark_runner.harness.fn_api.services.logging_service import LogStream
from beam_spark_runner.harness.fn_api.services.state_service import BundleState, StateStream
from beam_spark_runner.harness.fn_api.services.status_service import StatusStream

_LOOK_EVERY_S = 0.5


class SdkConnection:
    """The streams and the state of the connection to one SDK harness.

    ``worker_id`` is a name followed by a secret. The SDK sends it with every call, which
    authenticates the harness.

    Threads: any.
    """

    def __init__(self, name: str, provision: beam_provision_api_pb2.ProvisionInfo) -> None:
        self.worker_id = f"{name}-{secrets.token_hex(16)}"
        self.provision = provision
        self.instructions = InstructionIds()
        self.control = ControlStream(self.instructions, self.lose)
        self.data = DataStream(self.instructions, self.lose)
        self.state = StateStream()
        self.status = StatusStream()
        self.logs = LogStream()
        self._stages: dict[str, str] = {}  # name of the stage, by instruction
        self._error: RunnerError | None = None
        self._lock = threading.Lock()

    @property
    def error(self) -> RunnerError | None:
        """The reason why the harness is lost; None: it is not."""
        return self._error

    @property
    def running_stages(self) -> list[str]:
        """The names of the stages whose bundles are running."""
        return list(dict.fromkeys(self._stages.copy().values()))

    def lose(self, error: RunnerError) -> None:
        """Fail all bundles that are running, and any that are started later."""
        with self._lock:
            if self._error is not None:
                return
            self._error = error
        self.data.put_for_all(Lost(error))
        self.close()

    def start_bundle(
        self,
        stage: str,
        descriptor: beam_fn_api_pb2.ProcessBundleDescriptor,
        cache_tokens: list[Any],
        state: BundleState,
    ) -> tuple[str, Inbox]:
        """Send the instruction to process a bundle of ``stage``.

        Returns:
            The instruction's id, and the inbox of the bundle's events.
        """
        instruction = self.instructions.next()
        self._stages[instruction] = stage
        inbox = self.data.open(instruction)
        self.state.open(instruction, state)
        self.control.descriptors[descriptor.id] = descriptor

        def on_response(response: beam_fn_api_pb2.InstructionResponse) -> None:
            kind = response.WhichOneof("response")
            if response.error or kind == "process_bundle":
                coded = response.process_bundle.SerializeToString()
                self.data.put(instruction, Responded(response.error, coded))
                return
            problem = f"the SDK harness answered a bundle with {kind}"
            self.data.put(instruction, Lost(FnApiProtocolError(problem)))

        self.control.ask(
            beam_fn_api_pb2.InstructionRequest(
                instruction_id=instruction,
                process_bundle=beam_fn_api_pb2.ProcessBundleRequest(
                    process_bundle_descriptor_id=descriptor.id, cache_tokens=cache_tokens
                ),
            ),
            on_response,
        )
        if self._error is not None:
            self.data.put(instruction, Lost(self._error))
        return instruction, inbox

    def forget_stages(self) -> None:
        """Forget the descriptors of all stages, which ``start_bundle`` adds; no bundle may run."""
        self.control.descriptors.clear()

    def ask(
        self, request: beam_fn_api_pb2.InstructionRequest, timeout_s: float | None = None
    ) -> beam_fn_api_pb2.InstructionResponse | None:
        """Send an instruction that is answered at once, and wait for the response.

        The instruction's id is set here.

        Returns:
            The response; None if the harness is lost, or has not answered in time.
        """
        request.instruction_id = self.instructions.next()
        answers: queue.SimpleQueue[beam_fn_api_pb2.InstructionResponse] = queue.SimpleQueue()
        self.control.ask(request, answers.put)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while self._error is None and (deadline is None or time.monotonic() < deadline):
            with contextlib.suppress(queue.Empty):
                return answers.get(timeout=_LOOK_EVERY_S)
        self.control.forget(request.instruction_id)
        return None

    def end_bundle(self, instruction: str) -> None:
        """Forget a bundle: later messages for it are ignored."""
        self._stages.pop(instruction, None)
        self.control.forget(instruction)
        self.state.forget(instruction)
        self.data.forget(instruction)

    def close(self) -> None:
        """End the streams. The harness then exits, if it is alive."""
        self.control.close()
        self.data.close()
        self.status.close()
