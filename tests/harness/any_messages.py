"""What an SDK harness may send, right or wrong, for tests over gRPC."""

from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2, metrics_pb2
from hypothesis import strategies as st

from beam_spark_runner.harness.beam.plugin.block_edges import LOG_MARK_URN

IDS = st.sampled_from(["OURS", "1", "0", "99999", "", "x", "٣", "01", "9" * 5_000])
SINKS = st.sampled_from(["SINK", "source-0", "", "other"])
STEPS = st.sampled_from(["STEP", "STEP", "", "other"])
TIMER = b"\1k\0\0\0\0\1\0" + b"\x80" + bytes(7) + b"\x80" + bytes(7) + b"\x0f"
"""One of the key ``k``, at the beginning of time."""
DATA = st.one_of(st.binary(max_size=40), st.just(b"ELEMENT"), st.just(TIMER))
elements = st.builds(
    beam_fn_api_pb2.Elements,
    data=st.lists(
        st.builds(
            beam_fn_api_pb2.Elements.Data,
            instruction_id=IDS,
            transform_id=SINKS,
            data=DATA,
            is_last=st.booleans(),
        ),
        max_size=3,
    ),
    timers=st.lists(
        st.builds(
            beam_fn_api_pb2.Elements.Timers,
            instruction_id=IDS,
            transform_id=STEPS,
            timer_family_id=st.sampled_from(["ts-due", "ts-due", "", "other"]),
            timers=DATA,
            is_last=st.booleans(),
        ),
        max_size=2,
    ),
)
METRICS = {
    "sum_int64": ("element_count", b"\3"),
    "distribution_int64": ("sampled_byte_size", b"\1\5\5\5"),
    "latest_int64": ("user:latest_int64", bytes(8) + b"\7"),
    "set_string": ("user:set_string", b"\0\0\0\1\3abc"),
    "bounded_trie": ("user:bounded_trie", b"\x08\x64\x12\x01a"),
    "histogram_int64": ("user:histogram_int64", b""),
    "progress": ("ptransform_progress:remaining", bytes(12)),
    "other": ("other", b"x"),
}
"""The types of metrics: for each, what has it, and a payload."""
VARINTS = st.sampled_from([b"\x80" * 4 + b"\x08", b"\xff" * 9 + b"\x01", b"\xff" * 11, b"\xff"])


def metrics_of(type_: str) -> st.SearchStrategy[metrics_pb2.MonitoringInfo]:
    name, payload = METRICS[type_]
    return st.builds(
        metrics_pb2.MonitoringInfo,
        urn=st.sampled_from([f"beam:metric:{name}:v1", LOG_MARK_URN, ""]),
        type=st.just(f"beam:metrics:{type_}:v1"),
        payload=st.one_of(
            st.just(payload),
            st.builds(bytes.__add__, st.just(payload), VARINTS),
            st.builds(bytes.__add__, VARINTS, st.just(payload)),
            st.integers(0, len(payload)).map(lambda end: payload[:end]),
            DATA,
        ),
        labels=st.sampled_from(
            [{}, {"PTRANSFORM": "step"}, {"PCOLLECTION": "c"}, {"NAMESPACE": "n", "NAME": "m"}]
        ),
    )


metrics = st.lists(st.sampled_from(sorted(METRICS)).flatmap(metrics_of), max_size=3)
roots = st.lists(
    st.builds(
        beam_fn_api_pb2.DelayedBundleApplication,
        application=st.builds(
            beam_fn_api_pb2.BundleApplication,
            transform_id=STEPS,
            input_id=st.sampled_from(["", "i0"]),
            element=DATA,
        ),
    ),
    max_size=2,
)
responses = st.builds(
    beam_fn_api_pb2.InstructionResponse,
    instruction_id=IDS,
    error=st.sampled_from(["", "", "boom"]),
    process_bundle=st.one_of(
        st.none(),
        st.builds(
            beam_fn_api_pb2.ProcessBundleResponse,
            residual_roots=roots,
            monitoring_infos=metrics,
            requires_finalization=st.booleans(),
        ),
    ),
)
Key = beam_fn_api_pb2.StateKey
state_keys = st.one_of(
    st.builds(Key),
    st.builds(Key, runner=st.builds(Key.Runner, key=DATA)),
    st.builds(
        Key,
        multimap_side_input=st.builds(
            Key.MultimapSideInput, transform_id=SINKS, side_input_id=SINKS, window=DATA, key=DATA
        ),
    ),
    st.builds(
        Key,
        bag_user_state=st.builds(
            Key.BagUserState,
            transform_id=STEPS,
            user_state_id=st.sampled_from(["seen", "seen", "other"]),
            key=DATA,
            window=DATA,
        ),
    ),
    st.builds(
        Key,
        ordered_list_user_state=st.builds(
            Key.OrderedListUserState, transform_id=STEPS, user_state_id=st.just("seen"), key=DATA
        ),
    ),
)
tokens = st.sampled_from([b"", b"1", b"999999999", b"-1", b"x", b"9" * 30])
requests = st.one_of(
    st.builds(
        beam_fn_api_pb2.StateRequest,
        id=IDS,
        instruction_id=IDS,
        state_key=state_keys,
        get=st.builds(beam_fn_api_pb2.StateGetRequest, continuation_token=tokens),
    ),
    st.builds(
        beam_fn_api_pb2.StateRequest,
        id=IDS,
        instruction_id=IDS,
        state_key=state_keys,
        append=st.builds(beam_fn_api_pb2.StateAppendRequest, data=DATA),
    ),
    st.builds(
        beam_fn_api_pb2.StateRequest,
        id=IDS,
        instruction_id=IDS,
        state_key=state_keys,
        clear=st.just(beam_fn_api_pb2.StateClearRequest()),
    ),
    st.builds(beam_fn_api_pb2.StateRequest, id=IDS),
)
logs = st.builds(
    beam_fn_api_pb2.LogEntry.List,
    log_entries=st.lists(
        st.builds(
            beam_fn_api_pb2.LogEntry,
            severity=st.integers(0, 7),
            message=st.text(max_size=5),
            log_location=st.text(max_size=5),
            instruction_id=IDS,
        ),
        max_size=3,
    ),
)
statuses = st.builds(
    beam_fn_api_pb2.WorkerStatusResponse,
    id=IDS,
    status_info=st.text(max_size=5),
    error=st.text(max_size=5),
)
artifacts = st.builds(
    beam_runner_api_pb2.ArtifactInformation,
    type_urn=st.sampled_from(["beam:artifact:type:file:v1", "", "other"]),
    type_payload=DATA
    | st.just(beam_runner_api_pb2.ArtifactFilePayload(path="/etc/passwd").SerializeToString()),
    role_urn=st.sampled_from(["beam:artifact:role:staging_to:v1", ""]),
    role_payload=DATA,
)
indices = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-2, 3)
splits = st.builds(
    beam_fn_api_pb2.ProcessBundleSplitResponse,
    residual_roots=roots,
    channel_splits=st.lists(
        st.builds(
            beam_fn_api_pb2.ProcessBundleSplitResponse.ChannelSplit,
            transform_id=SINKS,
            last_primary_element=indices,
            first_residual_element=indices,
        ),
        max_size=2,
    ),
)
progress = st.builds(
    beam_fn_api_pb2.ProcessBundleProgressResponse,
    monitoring_infos=metrics,
)
answers = st.one_of(
    st.builds(
        beam_fn_api_pb2.InstructionResponse,
        instruction_id=st.sampled_from(["OURS", "99999", ""]),
        error=st.sampled_from(["", "boom"]),
    ),
    st.builds(
        beam_fn_api_pb2.InstructionResponse,
        instruction_id=st.just("OURS"),
        process_bundle_progress=progress,
    ),
    st.builds(
        beam_fn_api_pb2.InstructionResponse,
        instruction_id=st.just("OURS"),
        process_bundle_split=splits,
    ),
    st.builds(
        beam_fn_api_pb2.InstructionResponse,
        instruction_id=st.just("OURS"),
        finalize_bundle=st.just(beam_fn_api_pb2.FinalizeBundleResponse()),
    ),
)
