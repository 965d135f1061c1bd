"""The Beam URNs that the pure layers need, spelled out: they may not import Beam.

``tests/test_beam_contact.py`` compares each with Beam's own constant.
"""

IMPULSE = "beam:transform:impulse:v1"
FLATTEN = "beam:transform:flatten:v1"
GROUP_BY_KEY = "beam:transform:group_by_key:v1"
RESHUFFLE = "beam:transform:reshuffle:v1"
PAR_DO = "beam:transform:pardo:v1"
ASSIGN_WINDOWS = "beam:transform:window_into:v1"
MAP_WINDOWS = "beam:transform:map_windows:v1"
MERGE_WINDOWS = "beam:transform:merge_windows:v1"
READ = "beam:transform:read:v1"
TEST_STREAM = "beam:transform:teststream:v1"
PUBSUB_READ = "beam:transform:pubsub_read:v1"
PUBSUB_WRITE = "beam:transform:pubsub_write:v1"
PUBSUB_WRITE_DYNAMIC = "beam:transform:pubsub_write:v2"  # to a topic that each message names

FULL_WINDOW_PARTITION = "beam_spark_runner:transform:full_window_partition:v1"
FULL_WINDOW_PARTITION_BY_KEY = "beam_spark_runner:transform:full_window_partition_by_key:v1"
"""The composites of ``transforms.full_window``, whose payload is that of a ParDo."""
DECLARATIVE_KEYED_PROCESS = "beam_spark_runner:transform:declarative_keyed_process:v1"
"""The composite of ``transforms.declarative``, whose payload is that of a ParDo."""
DECLARED = "beam_spark_runner:declared:v1"
"""Its annotation with the descriptions of its callbacks and variables, a list in JSON."""

COMBINE_PER_KEY = "beam:transform:combine_per_key:v1"
COMBINE_PER_KEY_PRECOMBINE = "beam:transform:combine_per_key_precombine:v1"
COMBINE_PER_KEY_MERGE_ACCUMULATORS = "beam:transform:combine_per_key_merge_accumulators:v1"
COMBINE_PER_KEY_EXTRACT_OUTPUTS = "beam:transform:combine_per_key_extract_outputs:v1"
COMBINE_PER_KEY_CONVERT_TO_ACCUMULATORS = (
    "beam:transform:combine_per_key_convert_to_accumulators:v1"
)
COMBINE_GROUPED_VALUES = "beam:transform:combine_grouped_values:v1"

SDF_PAIR_WITH_RESTRICTION = "beam:transform:sdf_pair_with_restriction:v1"
SDF_SPLIT_AND_SIZE_RESTRICTIONS = "beam:transform:sdf_split_and_size_restrictions:v1"
SDF_PROCESS_SIZED_ELEMENT_AND_RESTRICTIONS = (
    "beam:transform:sdf_process_sized_element_and_restrictions:v1"
)
SDF_TRUNCATE_SIZED_RESTRICTIONS = "beam:transform:sdf_truncate_sized_restrictions:v1"

SIDE_INPUT_ITERABLE = "beam:side_input:iterable:v1"
SIDE_INPUT_MULTIMAP = "beam:side_input:multimap:v1"

GRPC_SOURCE = "beam:runner:source:v1"
GRPC_SINK = "beam:runner:sink:v1"

ENVIRONMENT_DEFAULT = "beam:env:default:v1"  # the runner chooses where the code runs
ENVIRONMENT_EMBEDDED_PYTHON = "beam:env:embedded_python:v1"
ENVIRONMENT_PROCESS = "beam:env:process:v1"
ENVIRONMENT_DOCKER = "beam:env:docker:v1"
ENVIRONMENT_EXTERNAL = "beam:env:external:v1"
ENVIRONMENT_ANYOF = "beam:env:anyof:v1"  # the runner chooses one of several environments

ARTIFACT_FILE = "beam:artifact:type:file:v1"
ARTIFACT_URL = "beam:artifact:type:url:v1"
ARTIFACT_EMBEDDED = "beam:artifact:type:embedded:v1"
ARTIFACT_STAGING_TO = "beam:artifact:role:staging_to:v1"
ARTIFACT_PIP_REQUIREMENTS = "beam:artifact:role:pip_requirements_file:v1"

CODER_BYTES = "beam:coder:bytes:v1"
CODER_STRING = "beam:coder:string_utf8:v1"
CODER_LENGTH_PREFIX = "beam:coder:length_prefix:v1"
CODER_STATE_BACKED_ITERABLE = "beam:coder:state_backed_iterable:v1"
CODER_KV = "beam:coder:kv:v1"
CODER_ITERABLE = "beam:coder:iterable:v1"
CODER_ROW = "beam:coder:row:v1"
CODER_DOUBLE = "beam:coder:double:v1"
CODER_VARINT = "beam:coder:varint:v1"
CODER_BOOL = "beam:coder:bool:v1"
CODER_NULLABLE = "beam:coder:nullable:v1"
CODER_TIMER = "beam:coder:timer:v1"
CODER_WINDOWED_VALUE = "beam:coder:windowed_value:v1"
WINDOWED_VALUE_CODERS = frozenset({CODER_WINDOWED_VALUE, "beam:coder:param_windowed_value:v1"})
CODER_GLOBAL_WINDOW = "beam:coder:global_window:v1"
CODER_INTERVAL_WINDOW = "beam:coder:interval_window:v1"
CODER_CUSTOM_WINDOW = "beam:coder:custom_window:v1"
WINDOW_CODERS = frozenset({CODER_GLOBAL_WINDOW, CODER_INTERVAL_WINDOW})
"""The coders of windows that every SDK and runner knows."""

WINDOW_FN_GLOBAL = "beam:window_fn:global_windows:v1"
WINDOW_FN_FIXED = "beam:window_fn:fixed_windows:v1"
WINDOW_FN_SLIDING = "beam:window_fn:sliding_windows:v1"
WINDOW_FN_SESSION = "beam:window_fn:session_windows:v1"
WINDOW_FNS = frozenset({WINDOW_FN_GLOBAL, WINDOW_FN_FIXED, WINDOW_FN_SLIDING, WINDOW_FN_SESSION})
"""The WindowFns of Beam's model, which every SDK and runner knows. All others are code of users."""
