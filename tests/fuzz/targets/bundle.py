"""Whole bundles: an SDK harness without gRPC answers what the runner asks of it, with anything."""

import random
from collections.abc import Sequence
from functools import cached_property
from typing import Any, TypeAlias

from apache_beam.portability.api import beam_fn_api_pb2, beam_provision_api_pb2
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.errors import RunnerError, SdkDisconnectedError
from beam_spark_runner.core.ids import StageId
from beam_spark_runner.harness.fn_api.connection import SdkConnection
from beam_spark_runner.harness.remote import bundle_messages, remote_bundle, remote_stage
from beam_spark_runner.harness.remote.remote_stage import RemoteStage
from beam_spark_runner.harness.remote.sdk_metrics import HarnessMetrics
from beam_spark_runner.harness.remote.settings import HarnessSettings
from tests.fuzz.corpus import Recorded, framed, frames
from tests.fuzz.protos import Pool
from tests.fuzz.targets.base import Messages, Target
from tests.fuzz.targets.stages import Stage, stages_of

Response: TypeAlias = beam_fn_api_pb2.InstructionResponse
Elements: TypeAlias = beam_fn_api_pb2.Elements


class Bundles(Target):
    """Responses, progress, splits, data and timers of one bundle or, of keyed stages, of several.

    A case has the answers in the order in which they are given: data and timers are sent before
    the next response.
    """

    name = "bundles"
    share = 3.0

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._stages = [each for each in stages if each.responses]

    def begin(self) -> None:
        harnesses = _Harnesses()
        for module in (remote_bundle, remote_stage):
            vars(module)["sdk_harnesses"] = harnesses
        bundle_messages._MAX_SILENCES = 1
        bundle_messages._SILENCE_S = 0.0  # what is missing then comes never
        self._harnesses = harnesses
        self._remote: dict[int, RemoteStage] = {}

    @cached_property
    def _pools(self) -> list[tuple[Pool, Pool]]:
        return [(Pool(each.responses), Pool(each.elements)) for each in self._stages]

    def case(self, random_: random.Random) -> bytes:
        number = random_.randrange(len(self._stages))
        stage = self._stages[number]
        responses, elements = self._pools[number]
        said: list[Recorded] = []
        for which in ("progress", "split", "end", "end", "end"):
            if which == "end":
                for each in _sent(stage, random_):
                    if random_.random() < 0.2:
                        each = elements.mutated(each, random_)
                    said.append(Recorded("E", number, each.SerializeToString()))
            response: Any = random_.choice(_of_kind(stage.responses, which))
            if random_.random() < 0.4:
                response = responses.mutated(response, random_)
            said.append(Recorded("R", number, response.SerializeToString()))
        return b"".join(map(framed, said))

    def run(self, case: bytes) -> object:
        said = list(frames(case))
        number = max(said[0].stage, 0) % len(self._stages) if said else 0
        remote = self._remote.get(number)
        if remote is None:
            stage = self._stages[number]
            settings = HarnessSettings(job_id="job")
            remote = RemoteStage("stage", stage.description, settings, StageId(1))
            self._remote[number] = remote
        self._harnesses.harness = _Harness(said)
        bundle = remote.start_bundle(dict.fromkeys(remote.output_coders, _Nobody()), {})
        try:
            bundle.progress()
            bundle.activity()
            splits = bundle.split(0.5)
            result = bundle.finish()
            return len(splits) + len(result.residual_roots)
        except RunnerError:
            bundle.abort()
            raise


class _Nobody:
    def accept(self, windowed_value: WindowedValue) -> None: ...
    def accept_chunk(self, values: list[Any], origins: list[WindowedValue]) -> None: ...


class _Harnesses:
    """In place of the SDK harnesses of a worker: one, which a case scripts."""

    harness: Any = None

    def acquire(self, *_: Any) -> Any:
        return self.harness

    def release(self, worker: Any, *, kill: bool = False) -> None: ...


class _Harness:
    """A harness that answers each request at once with what comes next in a case."""

    url = "localhost:1"
    start_timeout_s = 0.0
    sdk = "of a stranger"

    def __init__(self, said: list[Recorded]) -> None:
        self._said = said
        self.metrics = HarnessMetrics(self.sdk)
        provision = beam_provision_api_pb2.ProvisionInfo()
        self.connection = connection = SdkConnection("fuzzed", provision)
        self._ask, self._send = connection.control.ask, connection.data.send
        connection.control.ask = self.ask  # type: ignore[method-assign]
        connection.data.send = self.send  # type: ignore[method-assign]
        connection.data.is_open = True
        connection.logs.end()  # nobody waits for log lines

    def explain(self, error: RunnerError, name: str) -> RunnerError:
        return error

    def ask(self, request: Any, then: Any) -> None:
        self._ask(request, then)
        if not request.HasField("process_bundle"):
            self._answer(request.instruction_id)

    def send(self, elements: Any, size: int) -> None:
        self._send(elements, size)
        for each in elements.data:
            if each.is_last:
                self._answer(each.instruction_id)

    def _answer(self, instruction: str) -> None:
        connection = self.connection
        connection.control._is_closed = connection.data._is_closed = True  # their ends are no loss
        while self._said:
            kind, _, coded = self._said.pop(0)
            if kind == "E":
                elements = Elements.FromString(coded)
                for each in (*elements.data, *elements.timers):
                    if each.instruction_id.isdecimal():
                        each.instruction_id = instruction
                connection.data._is_closed = True
                connection.data._read(iter([elements]))
                continue
            response = Response.FromString(coded)
            if response.instruction_id.isdecimal():
                response.instruction_id = instruction
            connection.control._read(iter([response]))
            if response.instruction_id != instruction:
                connection.lose(SdkDisconnectedError("it answered something else"))
            return
        connection.lose(SdkDisconnectedError("it has nothing more to say"))


def _of_kind(responses: Sequence[Response], which: str) -> list[Response]:
    """Return the responses of a kind, or else any."""
    field = {"progress": "process_bundle_progress", "split": "process_bundle_split"}.get(
        which, "process_bundle"
    )
    found = [each for each in responses if each.WhichOneof("response") == field]
    return found or [Response(instruction_id="1"), *responses]


def _sent(stage: Stage, random_: random.Random) -> list[Elements]:
    """Return data and timers of a bundle, with the end of each output."""
    sent = [random_.choice(stage.elements)] if stage.elements else []
    end = Elements(
        data=[
            Elements.Data(instruction_id="1", transform_id=sink, is_last=True)
            for sink in stage.sinks
        ],
        timers=[
            Elements.Timers(
                instruction_id="1", transform_id=transform, timer_family_id=family, is_last=True
            )
            for transform, family in stage.families
        ],
    )
    body = Elements()
    for each in sent:
        body.data.extend(one for one in each.data if one.data)
        body.timers.extend(one for one in each.timers if one.timers)
    for one in (*body.data, *body.timers):
        one.is_last = False
    return [body, end]


def targets(messages: Messages) -> list[Target]:
    """Return the targets of this module."""
    return [Bundles(stages_of(messages))]
