"""A job server compiles pipelines, and builds what its workers run, without any code of clients."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.internal import pickler
from apache_beam.portability.api import beam_runner_api_pb2 as pb
from apache_beam.transforms.environments import EmbeddedPythonEnvironment, ProcessEnvironment
from google.protobuf import struct_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import PipelineRefusedError
from beam_spark_runner.engine.program import HelperProgram, StageProgram
from beam_spark_runner.engine.stages.side_windows import window_mapper
from beam_spark_runner.engine.task.epoch_stages import _value_counter
from beam_spark_runner.engine.worker.runtime import JobRuntime
from beam_spark_runner.harness.beam.side_input_cache import DecodedCache
from beam_spark_runner.harness.grouping.sdk_window_fn import strategy_for
from beam_spark_runner.harness.remote.remote_stage import RemoteStage
from beam_spark_runner.job.prepare.prepare import PreparedJob
from beam_spark_runner.options.server_options import ServerConfig
from beam_spark_runner.state.backend import Cell
from tests.canaries import (
    NONE,
    ODD,
    UNKNOWN,
    UNUSED,
    Canaries,
    add_pickled_coder,
    everything,
    give_window_fns,
    runner_steps,
    windows,
    writes,
)
from tests.programs import helpers_of, prepared_for_a_client, programs
from tests.unit.job.server.served import SOON_S, request, served

ENVIRONMENTS = {"embedded": EmbeddedPythonEnvironment(), "process": ProcessEnvironment("")}
STREAMS = pytest.mark.parametrize("is_streaming", [False, True], ids=["batch", "streaming"])


def proto_of(build: Callable[[beam.Pipeline], object], environment: str = "process") -> pb.Pipeline:
    p = beam.Pipeline()
    build(p)
    return p.to_runner_api(default_environment=ENVIRONMENTS[environment])


def build_stages(job: PreparedJob) -> int:
    """Build what a worker builds for its tasks; return how many stages there are."""
    count = 0
    for level in programs(job):
        runtime = JobRuntime(level, DecodedCache(), lambda: None)
        for program in level.stages:
            hosted: list[StageProgram | HelperProgram] = [program, *helpers_of(program)]
            for each in hosted:
                stage = runtime.stage(each, frozenset())
                assert isinstance(stage, RemoteStage), each.name
                assert stage.output_coders is not None
                count += 1
            windows_ = runtime.stage(program, frozenset()).input_coder.window_coder
            if program.input.coded_windowing:
                strategy_for(program.input, windows_, lambda _: [])
            if program.epoch is not None:
                for mapping in program.epoch.mappings.values():
                    window_mapper(runtime, mapping, windows_)
    return count


@STREAMS
@pytest.mark.parametrize("environment", ENVIRONMENTS)
@pytest.mark.parametrize("kind", ["everything", "windows", "writes"])
def test_nothing_of_a_client_is_unpickled(
    kind: str, environment: str, tmp_path: Path, *, is_streaming: bool
) -> None:
    builders = {"everything": everything, "windows": windows, "writes": writes(tmp_path / "out")}
    pipeline = proto_of(builders[kind], environment)
    canaries = Canaries(tmp_path / "canaries", pipeline)
    assert len(canaries.all) > 50
    assert build_stages(prepared_for_a_client(pipeline, is_streaming=is_streaming)) > 5
    assert canaries.fired() == {}


@STREAMS
@pytest.mark.parametrize("environment", [NONE, UNUSED])
def test_window_fns_belong_to_the_sdk_of_a_step(
    environment: str, tmp_path: Path, *, is_streaming: bool
) -> None:
    pipeline = proto_of(windows)
    give_window_fns(environment, pipeline)
    canaries = Canaries(tmp_path / "canaries", pipeline)
    job = prepared_for_a_client(pipeline, is_streaming=is_streaming)
    build_stages(job)
    assert canaries.fired() == {}
    mergers = [each for level in programs(job) for each in level.stages if each.window_merger]
    assert len(mergers) >= 2


@pytest.mark.parametrize(
    ("environment", "problem"),
    [
        (UNKNOWN, "the environment unknown, which is missing"),
        (ODD, "the environment beam:env:odd:v1 of the WindowFn"),
    ],
)
def test_window_fns_that_no_sdk_can_run_are_refused(environment: str, problem: str) -> None:
    pipeline = proto_of(windows)
    give_window_fns(environment, pipeline)
    with pytest.raises(PipelineRefusedError, match=problem) as raised:
        prepared_for_a_client(pipeline)
    assert "into visits: " in str(raised.value)
    assert "the windowing strategy" in str(raised.value)


def test_window_fns_of_a_pipeline_without_any_environment_are_refused() -> None:
    pipeline = proto_of(runner_steps)
    for transform in pipeline.components.transforms.values():
        transform.environment_id = ""
    for strategy in pipeline.components.windowing_strategies.values():
        strategy.environment_id = ""
        strategy.window_fn.urn = "beam:window_fn:of_somebody:v1"
    with pytest.raises(PipelineRefusedError, match="has no environment to run in"):
        prepared_for_a_client(pipeline)


def test_a_pipeline_of_runner_steps_alone_gets_a_harness_for_its_coders(tmp_path: Path) -> None:
    pipeline = proto_of(runner_steps)
    coder = add_pickled_coder(pipeline)
    for collection in pipeline.components.pcollections.values():
        collection.coder_id = coder
    for transform in pipeline.components.transforms.values():
        transform.environment_id = ""
    canaries = Canaries(tmp_path / "canaries", pipeline)
    assert build_stages(prepared_for_a_client(pipeline)) >= 1
    assert canaries.fired() == {}


@pytest.mark.parametrize("urn", [urns.CODER_GLOBAL_WINDOW, urns.CODER_ROW])
def test_parts_of_coders_that_have_none(urn: str, tmp_path: Path) -> None:
    pipeline = proto_of(everything)
    components, pickled = pipeline.components, add_pickled_coder(pipeline)
    if urn == urns.CODER_ROW:
        for coder in components.coders.values():
            if coder.spec.urn == urns.CODER_KV and coder.component_coder_ids:
                coder.component_coder_ids[0] = "row"
        components.coders["row"].spec.urn = urn
        components.coders["row"].component_coder_ids.append(pickled)
    for coder in components.coders.values():
        if coder.spec.urn == urn and not coder.component_coder_ids:
            coder.component_coder_ids.append(pickled)
    canaries = Canaries(tmp_path / "canaries", pipeline)
    build_stages(prepared_for_a_client(pipeline))
    assert canaries.fired() == {}


def test_values_of_a_multimap_are_counted_without_their_coder(tmp_path: Path) -> None:
    pipeline = proto_of(everything)
    pickled = add_pickled_coder(pipeline)
    for transform in pipeline.components.transforms.values():
        if transform.spec.urn == urns.PAR_DO:
            par_do = pb.ParDoPayload.FromString(transform.spec.payload)
            for state in par_do.state_specs.values():
                if state.HasField("bag_spec"):
                    state.multimap_spec.key_coder_id = pickled
                    state.multimap_spec.value_coder_id = pickled
                    state.protocol.urn = "beam:user_state:multimap:v1"
            transform.spec.payload = par_do.SerializeToString()
    canaries = Canaries(tmp_path / "canaries", pipeline)
    job = prepared_for_a_client(pipeline, is_streaming=True)
    for level in programs(job):
        for program in level.stages:
            if program.description.has_states:
                (step,) = program.description.step_names
                count = _value_counter(program.description.coded_descriptor)
                assert count(Cell(step, "seen", b"", b"key"), b"\1a\1b") == 2
    assert canaries.fired() == {}


def test_options_of_clients_load_nothing(tmp_path: Path) -> None:
    fired = tmp_path / "fired"

    class Fires:
        def __reduce__(self) -> Any:
            return fired.write_text, ("",)

    code = tmp_path / "named_by_a_client.py"
    code.write_text(f"open({str(fired)!r}, 'w').close()")
    options = struct_pb2.Struct()
    options.update(
        {
            "beam:option:beam_plugins:v1": ["named_by_a_client.Type"],
            "beam:option:beam_services:v1": {"service": str(code)},
            "beam:option:on_success_matcher:v1": pickler.dumps(Fires()).decode(),
            "beam:option:runner:v1": "named_by_a_client.Runner",
            "beam:option:save_main_session:v1": True,
            "beam:option:setup_file:v1": str(code),
            "beam:option:type_check_additional:v1": "all",
        }
    )
    asked = request(everything)
    asked.pipeline_options.CopyFrom(options)
    canaries = Canaries(tmp_path / "canaries", asked.pipeline)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        with served(ServerConfig(artifacts_dir=str(tmp_path / "staged"))) as (jobs, gate):
            id_ = jobs.run(jobs.prepare(asked))
            gate.wait_for(1)
            gate.let_through(1)
            assert jobs.job(id_).wait(SOON_S)
    assert canaries.fired() == {}
    assert not fired.exists()
    pickler.loads(pickler.dumps(Fires()))
    assert fired.exists()
