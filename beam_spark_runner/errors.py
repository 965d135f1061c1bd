"""The public errors of the runner, for programs that catch them.

``docs/errors.md`` shows their class hierarchy. ``KafkaAccessError`` is in
``beam_spark_runner.transforms.kafka``, and ``DeclarationError`` in
``beam_spark_runner.transforms``.
"""

from beam_spark_runner.core.errors import (
    BundleFailedError,
    CheckpointStorageError,
    EnvironmentStartError,
    EventServiceError,
    ExecutorMismatchError,
    FnApiProtocolError,
    HarnessError,
    HarnessStreamError,
    InvalidPipelineError,
    InvariantError,
    JobServerLostError,
    JobServerRefusedError,
    LostHarnessError,
    LostRowsError,
    OptionsError,
    OutputStorageError,
    PipelineError,
    PipelineRefusedError,
    RowStorageError,
    RunnerError,
    SdkDisconnectedError,
    SparkJobError,
    SparkSetupError,
    StagingError,
    StoredDataError,
    StuckBundleError,
    TableError,
    UnsupportedFeatureError,
)
from beam_spark_runner.job.files.checkpoint_storage import (
    CheckpointFolderError,
)
from beam_spark_runner.job.run.control import (
    JobCancelledError,
)
from beam_spark_runner.job.server.refusals import (
    JobHasEndedError,
    LostSparkError,
    NotStagedError,
    PrepareTimeoutError,
    ReplacedStreamError,
    ServerIsEndingError,
    SilentClientError,
    SuspendedJobError,
    TooLargeError,
    TooManyJobsError,
    UnknownIdError,
)
from beam_spark_runner.recovery.batch_start import (
    CrashLoopError,
)
from beam_spark_runner.recovery.begun_writes import (
    UnknownTableWriteError,
)
from beam_spark_runner.recovery.epoch_writes import (
    TableDatabaseError,
    UnknownEpochWriteError,
)
from beam_spark_runner.recovery.manifest import (
    CorruptManifestError,
    FencedError,
    IncompatibleCheckpointError,
)
from beam_spark_runner.recovery.savepoint_copy import (
    NothingCommittedError,
    SavepointExistsError,
)
from beam_spark_runner.recovery.stream_start import (
    StreamCrashLoopError,
)
from beam_spark_runner.state.checked_blocks import (
    DamagedFileError,
)
from beam_spark_runner.state.delta import (
    CorruptDeltaError,
)
from beam_spark_runner.state.remote.key_store import (
    OvertakenError,
    StateStoreError,
)
from beam_spark_runner.state.stored_deltas import (
    ShardStorageError,
)
from beam_spark_runner.storage.mounted_folder import (
    NotDurableError,
)

__all__ = [
    "BundleFailedError",
    "CheckpointFolderError",
    "CheckpointStorageError",
    "CorruptDeltaError",
    "CorruptManifestError",
    "CrashLoopError",
    "DamagedFileError",
    "EnvironmentStartError",
    "EventServiceError",
    "ExecutorMismatchError",
    "FencedError",
    "FnApiProtocolError",
    "HarnessError",
    "HarnessStreamError",
    "IncompatibleCheckpointError",
    "InvalidPipelineError",
    "InvariantError",
    "JobCancelledError",
    "JobHasEndedError",
    "JobServerLostError",
    "JobServerRefusedError",
    "LostHarnessError",
    "LostRowsError",
    "LostSparkError",
    "NotDurableError",
    "NotStagedError",
    "NothingCommittedError",
    "OptionsError",
    "OutputStorageError",
    "OvertakenError",
    "PipelineError",
    "PipelineRefusedError",
    "PrepareTimeoutError",
    "ReplacedStreamError",
    "RowStorageError",
    "RunnerError",
    "SavepointExistsError",
    "SdkDisconnectedError",
    "ServerIsEndingError",
    "ShardStorageError",
    "SilentClientError",
    "SparkJobError",
    "SparkSetupError",
    "StagingError",
    "StateStoreError",
    "StoredDataError",
    "StreamCrashLoopError",
    "StuckBundleError",
    "SuspendedJobError",
    "TableDatabaseError",
    "TableError",
    "TooLargeError",
    "TooManyJobsError",
    "UnknownEpochWriteError",
    "UnknownIdError",
    "UnknownTableWriteError",
    "UnsupportedFeatureError",
]
