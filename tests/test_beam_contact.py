"""Where this project touches Beam: an upgrade that breaks something fails here, in one place."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from apache_beam.coders import Coder, WindowedValueCoder, coder_impl, coders
from apache_beam.internal import pickler
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import cells, metric, monitoring_infos
from apache_beam.metrics.execution import MetricKey, MetricResult
from apache_beam.portability import common_urns, python_urns
from apache_beam.portability.api import (
    beam_fn_api_pb2,
    beam_job_api_pb2,
    beam_provision_api_pb2,
    beam_runner_api_pb2,
    metrics_pb2,
    standard_window_fns_pb2,
)
from apache_beam.runners import pipeline_context, runner
from apache_beam.runners.portability import artifact_service, portable_runner
from apache_beam.runners.worker import (
    bundle_processor,
    data_plane,
    operations,
    sdk_worker,
    sdk_worker_main,
    statesampler,
)
from apache_beam.transforms import timeutil
from apache_beam.utils import thread_pool_executor, windowed_value

from beam_spark_runner.core import urns
from tests.beam_names import beam_names, resolve

PACKAGE = Path(__file__).parents[1] / "beam_spark_runner"
FILES = sorted(PACKAGE.rglob("*.py"))


TOUCHED = sorted({name for file in FILES for name in beam_names(file)})


@pytest.mark.parametrize("name", TOUCHED)
def test_every_name_that_the_package_reads_exists(name: str) -> None:
    resolve(name)


def test_the_search_for_names_finds_some() -> None:
    assert "apache_beam.portability.api.beam_runner_api_pb2.ParDoPayload" in TOUCHED
    assert "apache_beam.metrics.monitoring_infos.int64_user_counter" in TOUCHED


primitives = common_urns.primitives
combine = common_urns.combine_components
sdf = common_urns.sdf_components
BEAMS_URNS = {
    "IMPULSE": primitives.IMPULSE,
    "FLATTEN": primitives.FLATTEN,
    "GROUP_BY_KEY": primitives.GROUP_BY_KEY,
    "RESHUFFLE": common_urns.composites.RESHUFFLE,
    "PAR_DO": primitives.PAR_DO,
    "ASSIGN_WINDOWS": primitives.ASSIGN_WINDOWS,
    "MAP_WINDOWS": primitives.MAP_WINDOWS,
    "MERGE_WINDOWS": primitives.MERGE_WINDOWS,
    "READ": common_urns.deprecated_primitives.READ,
    "TEST_STREAM": primitives.TEST_STREAM,
    "PUBSUB_READ": common_urns.composites.PUBSUB_READ,
    "PUBSUB_WRITE": common_urns.composites.PUBSUB_WRITE,
    "PUBSUB_WRITE_DYNAMIC": common_urns.composites.PUBSUB_WRITE_V2,
    "COMBINE_PER_KEY": common_urns.composites.COMBINE_PER_KEY,
    "COMBINE_PER_KEY_PRECOMBINE": combine.COMBINE_PER_KEY_PRECOMBINE,
    "COMBINE_PER_KEY_MERGE_ACCUMULATORS": combine.COMBINE_PER_KEY_MERGE_ACCUMULATORS,
    "COMBINE_PER_KEY_EXTRACT_OUTPUTS": combine.COMBINE_PER_KEY_EXTRACT_OUTPUTS,
    "COMBINE_PER_KEY_CONVERT_TO_ACCUMULATORS": combine.COMBINE_PER_KEY_CONVERT_TO_ACCUMULATORS,
    "COMBINE_GROUPED_VALUES": combine.COMBINE_GROUPED_VALUES,
    "SDF_PAIR_WITH_RESTRICTION": sdf.PAIR_WITH_RESTRICTION,
    "SDF_SPLIT_AND_SIZE_RESTRICTIONS": sdf.SPLIT_AND_SIZE_RESTRICTIONS,
    "SDF_PROCESS_SIZED_ELEMENT_AND_RESTRICTIONS": sdf.PROCESS_SIZED_ELEMENTS_AND_RESTRICTIONS,
    "SDF_TRUNCATE_SIZED_RESTRICTIONS": sdf.TRUNCATE_SIZED_RESTRICTION,
    "SIDE_INPUT_ITERABLE": common_urns.side_inputs.ITERABLE,
    "SIDE_INPUT_MULTIMAP": common_urns.side_inputs.MULTIMAP,
    "GRPC_SOURCE": SimpleNamespace(urn=bundle_processor.DATA_INPUT_URN),
    "GRPC_SINK": SimpleNamespace(urn=bundle_processor.DATA_OUTPUT_URN),
    "ENVIRONMENT_DEFAULT": common_urns.environments.DEFAULT,
    "ENVIRONMENT_EMBEDDED_PYTHON": SimpleNamespace(urn=python_urns.EMBEDDED_PYTHON),
    "ENVIRONMENT_PROCESS": common_urns.environments.PROCESS,
    "ENVIRONMENT_DOCKER": common_urns.environments.DOCKER,
    "ENVIRONMENT_EXTERNAL": common_urns.environments.EXTERNAL,
    "ENVIRONMENT_ANYOF": common_urns.environments.ANYOF,
    "ARTIFACT_FILE": common_urns.artifact_types.FILE,
    "ARTIFACT_URL": common_urns.artifact_types.URL,
    "ARTIFACT_EMBEDDED": common_urns.artifact_types.EMBEDDED,
    "ARTIFACT_STAGING_TO": common_urns.artifact_roles.STAGING_TO,
    "ARTIFACT_PIP_REQUIREMENTS": common_urns.artifact_roles.PIP_REQUIREMENTS_FILE,
    "CODER_STRING": common_urns.coders.STRING_UTF8,
    "CODER_LENGTH_PREFIX": common_urns.coders.LENGTH_PREFIX,
    "CODER_STATE_BACKED_ITERABLE": common_urns.coders.STATE_BACKED_ITERABLE,
    "CODER_BYTES": common_urns.coders.BYTES,
    "CODER_KV": common_urns.coders.KV,
    "CODER_ITERABLE": common_urns.coders.ITERABLE,
    "CODER_ROW": common_urns.coders.ROW,
    "CODER_DOUBLE": common_urns.coders.DOUBLE,
    "CODER_VARINT": common_urns.coders.VARINT,
    "CODER_BOOL": common_urns.coders.BOOL,
    "CODER_NULLABLE": common_urns.coders.NULLABLE,
    "CODER_TIMER": common_urns.coders.TIMER,
    "CODER_WINDOWED_VALUE": common_urns.coders.WINDOWED_VALUE,
    "CODER_GLOBAL_WINDOW": common_urns.coders.GLOBAL_WINDOW,
    "CODER_INTERVAL_WINDOW": common_urns.coders.INTERVAL_WINDOW,
    "CODER_CUSTOM_WINDOW": common_urns.coders.CUSTOM_WINDOW,
    "WINDOW_FN_GLOBAL": common_urns.global_windows,
    "WINDOW_FN_FIXED": common_urns.fixed_windows,
    "WINDOW_FN_SLIDING": common_urns.sliding_windows,
    "WINDOW_FN_SESSION": common_urns.session_windows,
}
OUR_URNS = {
    name: value
    for name, value in vars(urns).items()
    if isinstance(value, str)
    and name.isupper()
    and not value.startswith("beam_spark_runner:")  # transforms of our own
}


@pytest.mark.parametrize("name", sorted(OUR_URNS))
def test_our_urns_are_beams(name: str) -> None:
    assert OUR_URNS[name] == BEAMS_URNS[name].urn


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        (
            beam_runner_api_pb2.Components,
            "transforms pcollections coders windowing_strategies environments",
        ),
        (beam_runner_api_pb2.Pipeline, "components root_transform_ids requirements"),
        (
            beam_runner_api_pb2.PTransform,
            "unique_name spec subtransforms inputs outputs environment_id",
        ),
        (
            beam_runner_api_pb2.PCollection,
            "unique_name coder_id is_bounded windowing_strategy_id",
        ),
        (beam_runner_api_pb2.Coder, "spec component_coder_ids"),
        (
            beam_runner_api_pb2.WindowingStrategy,
            "window_fn merge_status window_coder_id trigger output_time",
        ),
        (
            beam_runner_api_pb2.ParDoPayload,
            "do_fn side_inputs state_specs timer_family_specs restriction_coder_id "
            "requests_finalization requires_time_sorted_input requires_stable_input",
        ),
        (beam_runner_api_pb2.CombinePayload, "combine_fn accumulator_coder_id"),
        (
            beam_runner_api_pb2.Environment,
            "urn payload dependencies display_data capabilities resource_hints",
        ),
        (beam_runner_api_pb2.Trigger, "after_end_of_window default element_count"),
        (
            beam_fn_api_pb2.ProcessBundleDescriptor,
            "id transforms pcollections windowing_strategies coders environments "
            "state_api_service_descriptor timer_api_service_descriptor",
        ),
        (
            beam_fn_api_pb2.DelayedBundleApplication,
            "application requested_time_delay",
        ),
        (beam_fn_api_pb2.BundleApplication, "transform_id element output_watermarks"),
        (beam_fn_api_pb2.ProcessBundleResponse, "residual_roots"),
        (beam_fn_api_pb2.ProcessBundleSplitResponse, "residual_roots"),
        (beam_fn_api_pb2.RemoteGrpcPort, "api_service_descriptor coder_id"),
        (standard_window_fns_pb2.FixedWindowsPayload, "size offset"),
        (standard_window_fns_pb2.SlidingWindowsPayload, "size offset period"),
        (
            beam_fn_api_pb2.InstructionRequest,
            "instruction_id process_bundle process_bundle_progress process_bundle_split "
            "finalize_bundle",
        ),
        (
            beam_fn_api_pb2.InstructionResponse,
            "instruction_id error process_bundle process_bundle_progress",
        ),
        (beam_fn_api_pb2.FinalizeBundleRequest, "instruction_id"),
        (beam_fn_api_pb2.ProcessBundleProgressRequest, "instruction_id"),
        (beam_fn_api_pb2.ProcessBundleProgressResponse, "monitoring_infos"),
        (beam_fn_api_pb2.ProcessBundleRequest, "process_bundle_descriptor_id cache_tokens"),
        (beam_fn_api_pb2.ProcessBundleRequest.CacheToken, "side_input token"),
        (
            beam_fn_api_pb2.ProcessBundleResponse,
            "residual_roots monitoring_infos requires_finalization",
        ),
        (
            beam_fn_api_pb2.ProcessBundleSplitRequest.DesiredSplit,
            "fraction_of_remainder estimated_input_elements",
        ),
        (beam_fn_api_pb2.ProcessBundleSplitResponse, "residual_roots channel_splits"),
        (beam_fn_api_pb2.Elements.Data, "instruction_id transform_id data is_last"),
        (beam_fn_api_pb2.StateRequest, "id instruction_id state_key get append clear"),
        (beam_fn_api_pb2.StateKey, "runner iterable_side_input multimap_side_input"),
        (
            beam_fn_api_pb2.LogEntry,
            "severity message trace transform_id log_location timestamp thread",
        ),
        (
            beam_job_api_pb2.JobMessage,
            "message_id time importance message_text",
        ),
        (
            beam_fn_api_pb2.StartWorkerRequest,
            "worker_id control_endpoint logging_endpoint artifact_endpoint provision_endpoint "
            "params",
        ),
        (
            beam_provision_api_pb2.ProvisionInfo,
            "pipeline_options control_endpoint logging_endpoint artifact_endpoint dependencies",
        ),
        (metrics_pb2.MonitoringInfo, "urn type payload labels"),
        (metrics_pb2.BoundedTrie, "bound root singleton"),
    ],
)
def test_messages_have_our_fields(message: Any, fields: str) -> None:
    assert set(fields.split()) <= set(message.DESCRIPTOR.fields_by_name)


def test_a_window_into_payload_reads_as_a_windowing_strategy() -> None:
    """``portable.payloads`` decodes both as the latter."""
    payload = beam_runner_api_pb2.WindowIntoPayload(
        window_fn=beam_runner_api_pb2.FunctionSpec(urn="fn")
    )
    strategy = beam_runner_api_pb2.WindowingStrategy.FromString(payload.SerializeToString())
    assert strategy.window_fn.urn == "fn"
    assert not strategy.window_coder_id


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (
            bundle_processor.BundleProcessor,
            "runner_capabilities process_bundle_descriptor state_handler data_channel_factory "
            "data_sampler",
        ),
        (bundle_processor.BeamTransformFactory.register_urn, "urn parameter_type"),
        (bundle_processor.BeamTransformFactory.get_coder, "self coder_id"),
        (sdk_worker.SdkHarness, "control_address worker_id state_cache_size"),
        (sdk_worker.SdkHarness._execute, "self task request"),
        (thread_pool_executor.UnboundedThreadPoolExecutor.shutdown, "self wait"),
        (
            bundle_processor.RunnerIOOperation,
            "name_context step_name consumers counter_factory state_sampler windowed_coder "
            "transform_id",  # the last one, by position: 2.77 renamed it
        ),
        (pipeline_context.PipelineContext, "proto"),
        (runner.PipelineRunner.run_portable_pipeline, "self pipeline options"),
        (runner.PipelineRunner.default_environment, "self options"),
        (FileSystems.set_options, "pipeline_options"),
        (pickler.set_library, "selected_library"),
        (metric.MetricResults.query, "self filter"),
        (metric.MetricResults.matches, "filter metric_key"),
        (MetricKey, "step metric labels"),
        (MetricResult, "key committed attempted"),
        (monitoring_infos.int64_distribution, "urn metric"),
        (cells.GaugeData, "value timestamp"),
        (WindowedValueCoder, "wrapped_value_coder window_coder"),
        (portable_runner.JobServiceHandle, "job_service options"),
        (
            portable_runner.JobServiceHandle.stage,
            "proto_pipeline artifact_staging_endpoint staging_session_token",
        ),
        (portable_runner.JobServiceHandle.run, "preparation_id"),
        (portable_runner.PortableRunner.create_job_service, "options"),
        (
            artifact_service.offer_artifacts,
            "artifact_staging_service artifact_retrieval_service staging_token",
        ),
    ],
)
def test_parameters_are_as_we_pass_them(function: Callable[..., Any], parameters: str) -> None:
    found = [name for name in inspect.signature(function).parameters if name != "self"]
    wanted = [name for name in parameters.split() if name != "self"]
    assert [name for name in found if name in wanted] == wanted


@pytest.mark.parametrize(
    ("owner", "attributes"),
    [
        (Coder, "_known_urns encode decode get_impl is_deterministic is_kv_coder"),
        (coders.TupleCoder, "key_coder value_coder"),
        (
            bundle_processor.BundleProcessor,
            "create_execution_tree monitoring_infos shutdown reset delayed_bundle_application "
            "requires_finalization finalize_bundle",
        ),
        (statesampler, "get_current_tracker"),
        (operations.SdfProcessSizedElements, "try_split current_element_progress"),
        (operations.ConsumerSet, "try_split output_sampler"),
        (coder_impl.create_OutputStream, "get size"),
        (coder_impl.create_InputStream, "size"),
        (coder_impl.CoderImpl, "encode_nested decode_nested encode_to_stream decode_from_stream"),
        (coder_impl.CoderImpl, "get_estimated_size_and_observables"),
        (operations.PGBKCVOperation, "combine_fn is_default_windowing timestamp_combiner"),
        (timeutil.TimestampCombinerImpl, "assign_output_time combine merge"),
        (sdk_worker.CachingStateHandler, "process_instruction_id blocking_get extend clear done"),
        (data_plane, "DataChannelFactory"),
        (metric.MetricResults, "COUNTERS DISTRIBUTIONS GAUGES STRINGSETS BOUNDED_TRIES HISTOGRAMS"),
        (cells.HistogramData, "from_proto to_proto combine"),
        (cells.BoundedTrieData, "from_proto to_proto combine as_trie"),
        (windowed_value.WindowedValue, "value timestamp windows pane_info with_value"),
    ],
)
def test_attributes_exist(owner: Any, attributes: str) -> None:
    assert [name for name in attributes.split() if not hasattr(owner, name)] == []


def test_compiled_classes_take_what_we_pass() -> None:
    """They have no signature to look at."""
    data = cells.DistributionData(3, 2, 1, 2)
    assert (data.sum, data.count, data.min, data.max) == (3, 2, 1, 2)
    trie = cells.BoundedTrieData(root=cells.BoundedTrieData().as_trie(), bound=7)
    assert trie.to_proto().bound == 7


def test_the_data_channel_is_the_last_argument_of_an_edge_operation() -> None:
    *_, last = inspect.signature(bundle_processor.RunnerIOOperation).parameters
    assert last.startswith("data_channel")


def test_edge_operations_are_handed_factory_id_proto_payload_and_consumers() -> None:
    for create in (bundle_processor.create_source_runner, bundle_processor.create_sink_runner):
        assert list(inspect.signature(create).parameters) == [
            "factory",
            "transform_id",
            "transform_proto",
            "grpc_port",
            "consumers",
        ]


def test_a_group_that_is_in_the_state_is_read_by_its_coders_function() -> None:
    read_state = object()
    coder = coders.StateBackedIterableCoder(coders.BytesCoder(), read_state=read_state)
    assert coder._read_state is read_state
    assert coder._get_component_coders() == (coders.BytesCoder(),)


def test_an_sdk_worker_reads_the_environment_variables_that_we_set() -> None:
    """And no other that has no default."""
    text = inspect.getsource(sdk_worker_main.create_harness)
    for name in (
        "WORKER_ID",
        "CONTROL_API_SERVICE_DESCRIPTOR",
        "LOGGING_API_SERVICE_DESCRIPTOR",
        "PIPELINE_OPTIONS",
        "RUNNER_CAPABILITIES",
    ):
        assert f"'{name}'" in text
    assert re.findall(r"environment\['(\w+)'\]", text) == [
        "LOGGING_API_SERVICE_DESCRIPTOR",
        "PIPELINE_OPTIONS_FILE",
        "CONTROL_API_SERVICE_DESCRIPTOR",
        "STATUS_API_SERVICE_DESCRIPTOR",
    ]


def test_a_harness_has_what_ours_in_this_process_touches() -> None:
    text = inspect.getsource(sdk_worker.SdkHarness.__init__)
    for name in (
        "_responses",
        "_worker_thread_pool",
        "_report_progress_executor",
        "_state_handler_factory",
        "_bundle_processor_cache",
    ):
        assert f"self.{name} = " in text
    assert "if response is no_more_work" in inspect.getsource(sdk_worker.SdkHarness.run)
    assert "self._worker_thread_pool.shutdown()" in inspect.getsource(sdk_worker.SdkHarness.run)


@pytest.mark.parametrize(
    "kind",
    ["SUM_INT64", "DISTRIBUTION_INT64", "LATEST_INT64", "STRING_SET", "BOUNDED_TRIE", "HISTOGRAM"],
)
def test_metric_types_have_a_name(kind: str) -> None:
    assert getattr(monitoring_infos, f"{kind}_TYPE").startswith("beam:metrics:")
