from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TaskReport(_message.Message):
    __slots__ = ("level", "partition", "attempt", "consumed", "monitoring_infos", "failure", "poisoned", "emitted_bytes", "residuals", "worker", "messages_sent", "watermarks_us", "finalizes", "shard", "deferred", "views", "looks_up_us", "finished", "stages", "spent_us", "returned_rows", "unread_rows", "work", "table_rows")
    class ConsumedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: Attempts
        def __init__(self, key: _Optional[int] = ..., value: _Optional[_Union[Attempts, _Mapping]] = ...) -> None: ...
    class ResidualsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: Residuals
        def __init__(self, key: _Optional[int] = ..., value: _Optional[_Union[Residuals, _Mapping]] = ...) -> None: ...
    class WatermarksUsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class DeferredEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Residuals
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Residuals, _Mapping]] = ...) -> None: ...
    class LooksUpUsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class StagesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: StageStatus
        def __init__(self, key: _Optional[int] = ..., value: _Optional[_Union[StageStatus, _Mapping]] = ...) -> None: ...
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CONSUMED_FIELD_NUMBER: _ClassVar[int]
    MONITORING_INFOS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    POISONED_FIELD_NUMBER: _ClassVar[int]
    EMITTED_BYTES_FIELD_NUMBER: _ClassVar[int]
    RESIDUALS_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_SENT_FIELD_NUMBER: _ClassVar[int]
    WATERMARKS_US_FIELD_NUMBER: _ClassVar[int]
    FINALIZES_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    DEFERRED_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    LOOKS_UP_US_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    SPENT_US_FIELD_NUMBER: _ClassVar[int]
    RETURNED_ROWS_FIELD_NUMBER: _ClassVar[int]
    UNREAD_ROWS_FIELD_NUMBER: _ClassVar[int]
    WORK_FIELD_NUMBER: _ClassVar[int]
    TABLE_ROWS_FIELD_NUMBER: _ClassVar[int]
    level: int
    partition: int
    attempt: int
    consumed: _containers.MessageMap[int, Attempts]
    monitoring_infos: _containers.RepeatedScalarFieldContainer[bytes]
    failure: Failure
    poisoned: bool
    emitted_bytes: int
    residuals: _containers.MessageMap[int, Residuals]
    worker: str
    messages_sent: int
    watermarks_us: _containers.ScalarMap[int, int]
    finalizes: bool
    shard: ShardReport
    deferred: _containers.MessageMap[str, Residuals]
    views: _containers.RepeatedCompositeFieldContainer[View]
    looks_up_us: _containers.ScalarMap[int, int]
    finished: _containers.RepeatedScalarFieldContainer[int]
    stages: _containers.MessageMap[int, StageStatus]
    spent_us: int
    returned_rows: bytes
    unread_rows: int
    work: TaskWork
    table_rows: _containers.RepeatedCompositeFieldContainer[TableRows]
    def __init__(self, level: _Optional[int] = ..., partition: _Optional[int] = ..., attempt: _Optional[int] = ..., consumed: _Optional[_Mapping[int, Attempts]] = ..., monitoring_infos: _Optional[_Iterable[bytes]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., poisoned: bool = ..., emitted_bytes: _Optional[int] = ..., residuals: _Optional[_Mapping[int, Residuals]] = ..., worker: _Optional[str] = ..., messages_sent: _Optional[int] = ..., watermarks_us: _Optional[_Mapping[int, int]] = ..., finalizes: bool = ..., shard: _Optional[_Union[ShardReport, _Mapping]] = ..., deferred: _Optional[_Mapping[str, Residuals]] = ..., views: _Optional[_Iterable[_Union[View, _Mapping]]] = ..., looks_up_us: _Optional[_Mapping[int, int]] = ..., finished: _Optional[_Iterable[int]] = ..., stages: _Optional[_Mapping[int, StageStatus]] = ..., spent_us: _Optional[int] = ..., returned_rows: _Optional[bytes] = ..., unread_rows: _Optional[int] = ..., work: _Optional[_Union[TaskWork, _Mapping]] = ..., table_rows: _Optional[_Iterable[_Union[TableRows, _Mapping]]] = ...) -> None: ...

class TableRows(_message.Message):
    __slots__ = ("dest", "file", "rows")
    DEST_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    dest: int
    file: str
    rows: int
    def __init__(self, dest: _Optional[int] = ..., file: _Optional[str] = ..., rows: _Optional[int] = ...) -> None: ...

class TaskWork(_message.Message):
    __slots__ = ("level", "partition", "spent_us", "rows", "largest", "is_done")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SPENT_US_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    LARGEST_FIELD_NUMBER: _ClassVar[int]
    IS_DONE_FIELD_NUMBER: _ClassVar[int]
    level: int
    partition: int
    spent_us: int
    rows: int
    largest: LargestKey
    is_done: bool
    def __init__(self, level: _Optional[int] = ..., partition: _Optional[int] = ..., spent_us: _Optional[int] = ..., rows: _Optional[int] = ..., largest: _Optional[_Union[LargestKey, _Mapping]] = ..., is_done: bool = ...) -> None: ...

class LargestKey(_message.Message):
    __slots__ = ("step", "text", "rows")
    STEP_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    step: str
    text: str
    rows: int
    def __init__(self, step: _Optional[str] = ..., text: _Optional[str] = ..., rows: _Optional[int] = ...) -> None: ...

class StageStatus(_message.Message):
    __slots__ = ("output_us", "hold_us", "waiting", "left")
    OUTPUT_US_FIELD_NUMBER: _ClassVar[int]
    HOLD_US_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    output_us: int
    hold_us: int
    waiting: Waiting
    left: Residuals
    def __init__(self, output_us: _Optional[int] = ..., hold_us: _Optional[int] = ..., waiting: _Optional[_Union[Waiting, _Mapping]] = ..., left: _Optional[_Union[Residuals, _Mapping]] = ...) -> None: ...

class Waiting(_message.Message):
    __slots__ = ("hold_us", "window", "views")
    HOLD_US_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    hold_us: int
    window: bytes
    views: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, hold_us: _Optional[int] = ..., window: _Optional[bytes] = ..., views: _Optional[_Iterable[int]] = ...) -> None: ...

class ShardReport(_message.Message):
    __slots__ = ("epoch", "attempt", "next_event_us", "next_clock_us", "was_cut_off", "awaited_us", "was_interrupted", "awaits_commit", "older", "keyed", "was_rebuilt", "stored_bytes", "stored_records", "needs", "group_bytes")
    class AwaitedUsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    NEXT_EVENT_US_FIELD_NUMBER: _ClassVar[int]
    NEXT_CLOCK_US_FIELD_NUMBER: _ClassVar[int]
    WAS_CUT_OFF_FIELD_NUMBER: _ClassVar[int]
    AWAITED_US_FIELD_NUMBER: _ClassVar[int]
    WAS_INTERRUPTED_FIELD_NUMBER: _ClassVar[int]
    AWAITS_COMMIT_FIELD_NUMBER: _ClassVar[int]
    OLDER_FIELD_NUMBER: _ClassVar[int]
    KEYED_FIELD_NUMBER: _ClassVar[int]
    WAS_REBUILT_FIELD_NUMBER: _ClassVar[int]
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    STORED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    NEEDS_FIELD_NUMBER: _ClassVar[int]
    GROUP_BYTES_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    attempt: int
    next_event_us: int
    next_clock_us: int
    was_cut_off: bool
    awaited_us: _containers.ScalarMap[int, int]
    was_interrupted: bool
    awaits_commit: bool
    older: _containers.RepeatedCompositeFieldContainer[DeltaId]
    keyed: _containers.RepeatedCompositeFieldContainer[KeyedReport]
    was_rebuilt: bool
    stored_bytes: int
    stored_records: int
    needs: _containers.RepeatedCompositeFieldContainer[StageNeeds]
    group_bytes: int
    def __init__(self, epoch: _Optional[int] = ..., attempt: _Optional[int] = ..., next_event_us: _Optional[int] = ..., next_clock_us: _Optional[int] = ..., was_cut_off: bool = ..., awaited_us: _Optional[_Mapping[int, int]] = ..., was_interrupted: bool = ..., awaits_commit: bool = ..., older: _Optional[_Iterable[_Union[DeltaId, _Mapping]]] = ..., keyed: _Optional[_Iterable[_Union[KeyedReport, _Mapping]]] = ..., was_rebuilt: bool = ..., stored_bytes: _Optional[int] = ..., stored_records: _Optional[int] = ..., needs: _Optional[_Iterable[_Union[StageNeeds, _Mapping]]] = ..., group_bytes: _Optional[int] = ...) -> None: ...

class StageNeeds(_message.Message):
    __slots__ = ("stage", "declared")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    DECLARED_FIELD_NUMBER: _ClassVar[int]
    stage: int
    declared: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, stage: _Optional[int] = ..., declared: _Optional[_Iterable[str]] = ...) -> None: ...

class KeyedReport(_message.Message):
    __slots__ = ("store", "epoch", "attempt", "older", "needs_parts")
    STORE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    OLDER_FIELD_NUMBER: _ClassVar[int]
    NEEDS_PARTS_FIELD_NUMBER: _ClassVar[int]
    store: int
    epoch: int
    attempt: int
    older: _containers.RepeatedCompositeFieldContainer[DeltaId]
    needs_parts: bool
    def __init__(self, store: _Optional[int] = ..., epoch: _Optional[int] = ..., attempt: _Optional[int] = ..., older: _Optional[_Iterable[_Union[DeltaId, _Mapping]]] = ..., needs_parts: bool = ...) -> None: ...

class DeltaId(_message.Message):
    __slots__ = ("epoch", "attempt")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    attempt: int
    def __init__(self, epoch: _Optional[int] = ..., attempt: _Optional[int] = ...) -> None: ...

class Attempts(_message.Message):
    __slots__ = ("count", "sum")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SUM_FIELD_NUMBER: _ClassVar[int]
    count: int
    sum: int
    def __init__(self, count: _Optional[int] = ..., sum: _Optional[int] = ...) -> None: ...

class Residuals(_message.Message):
    __slots__ = ("count", "hold_us", "size")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    HOLD_US_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    count: int
    hold_us: int
    size: float
    def __init__(self, count: _Optional[int] = ..., hold_us: _Optional[int] = ..., size: _Optional[float] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("step", "cause", "traceback", "kind", "raised")
    STEP_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    TRACEBACK_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    RAISED_FIELD_NUMBER: _ClassVar[int]
    step: str
    cause: str
    traceback: str
    kind: str
    raised: Raised
    def __init__(self, step: _Optional[str] = ..., cause: _Optional[str] = ..., traceback: _Optional[str] = ..., kind: _Optional[str] = ..., raised: _Optional[_Union[Raised, _Mapping]] = ...) -> None: ...

class Raised(_message.Message):
    __slots__ = ("classes", "attributes", "cause", "parts")
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    classes: _containers.RepeatedScalarFieldContainer[str]
    attributes: str
    cause: str
    parts: _containers.RepeatedCompositeFieldContainer[Raised]
    def __init__(self, classes: _Optional[_Iterable[str]] = ..., attributes: _Optional[str] = ..., cause: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[Raised, _Mapping]]] = ...) -> None: ...

class AttemptMark(_message.Message):
    __slots__ = ("attempt", "failed", "left_residuals", "watermarks_us", "run", "epoch", "partition", "partition_of")
    class WatermarksUsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    LEFT_RESIDUALS_FIELD_NUMBER: _ClassVar[int]
    WATERMARKS_US_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    PARTITION_OF_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    failed: bool
    left_residuals: bool
    watermarks_us: _containers.ScalarMap[int, int]
    run: int
    epoch: Epoch
    partition: int
    partition_of: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, attempt: _Optional[int] = ..., failed: bool = ..., left_residuals: bool = ..., watermarks_us: _Optional[_Mapping[int, int]] = ..., run: _Optional[int] = ..., epoch: _Optional[_Union[Epoch, _Mapping]] = ..., partition: _Optional[int] = ..., partition_of: _Optional[_Iterable[int]] = ...) -> None: ...

class Epoch(_message.Message):
    __slots__ = ("number", "clock_us", "heads", "watermarks_us", "clock_stands", "budget_us", "views", "committed_clock_us", "fence", "drains", "due_us", "namespace", "stores", "keyed")
    class WatermarksUsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class StoresEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    CLOCK_US_FIELD_NUMBER: _ClassVar[int]
    HEADS_FIELD_NUMBER: _ClassVar[int]
    WATERMARKS_US_FIELD_NUMBER: _ClassVar[int]
    CLOCK_STANDS_FIELD_NUMBER: _ClassVar[int]
    BUDGET_US_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_CLOCK_US_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    DRAINS_FIELD_NUMBER: _ClassVar[int]
    DUE_US_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    STORES_FIELD_NUMBER: _ClassVar[int]
    KEYED_FIELD_NUMBER: _ClassVar[int]
    number: int
    clock_us: int
    heads: _containers.RepeatedCompositeFieldContainer[ShardHead]
    watermarks_us: _containers.ScalarMap[int, int]
    clock_stands: bool
    budget_us: int
    views: _containers.RepeatedCompositeFieldContainer[View]
    committed_clock_us: int
    fence: int
    drains: bool
    due_us: int
    namespace: str
    stores: _containers.ScalarMap[int, int]
    keyed: _containers.RepeatedCompositeFieldContainer[KeyedHead]
    def __init__(self, number: _Optional[int] = ..., clock_us: _Optional[int] = ..., heads: _Optional[_Iterable[_Union[ShardHead, _Mapping]]] = ..., watermarks_us: _Optional[_Mapping[int, int]] = ..., clock_stands: bool = ..., budget_us: _Optional[int] = ..., views: _Optional[_Iterable[_Union[View, _Mapping]]] = ..., committed_clock_us: _Optional[int] = ..., fence: _Optional[int] = ..., drains: bool = ..., due_us: _Optional[int] = ..., namespace: _Optional[str] = ..., stores: _Optional[_Mapping[int, int]] = ..., keyed: _Optional[_Iterable[_Union[KeyedHead, _Mapping]]] = ...) -> None: ...

class View(_message.Message):
    __slots__ = ("dest", "window", "file", "expires_us", "part")
    DEST_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_US_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    dest: int
    window: bytes
    file: str
    expires_us: int
    part: bytes
    def __init__(self, dest: _Optional[int] = ..., window: _Optional[bytes] = ..., file: _Optional[str] = ..., expires_us: _Optional[int] = ..., part: _Optional[bytes] = ...) -> None: ...

class ShardHead(_message.Message):
    __slots__ = ("level", "partition", "epoch", "attempt")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    level: int
    partition: int
    epoch: int
    attempt: int
    def __init__(self, level: _Optional[int] = ..., partition: _Optional[int] = ..., epoch: _Optional[int] = ..., attempt: _Optional[int] = ...) -> None: ...

class KeyedHead(_message.Message):
    __slots__ = ("store", "partition", "epoch", "attempt", "parts")
    STORE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    store: int
    partition: int
    epoch: int
    attempt: int
    parts: _containers.RepeatedCompositeFieldContainer[KeyedPart]
    def __init__(self, store: _Optional[int] = ..., partition: _Optional[int] = ..., epoch: _Optional[int] = ..., attempt: _Optional[int] = ..., parts: _Optional[_Iterable[_Union[KeyedPart, _Mapping]]] = ...) -> None: ...

class KeyedPart(_message.Message):
    __slots__ = ("first", "end", "chains")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    CHAINS_FIELD_NUMBER: _ClassVar[int]
    first: int
    end: int
    chains: _containers.RepeatedCompositeFieldContainer[EarlierHead]
    def __init__(self, first: _Optional[int] = ..., end: _Optional[int] = ..., chains: _Optional[_Iterable[_Union[EarlierHead, _Mapping]]] = ...) -> None: ...

class EarlierHead(_message.Message):
    __slots__ = ("partition", "epoch", "attempt")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    partition: int
    epoch: int
    attempt: int
    def __init__(self, partition: _Optional[int] = ..., epoch: _Optional[int] = ..., attempt: _Optional[int] = ...) -> None: ...

class SideInputReport(_message.Message):
    __slots__ = ("attempt", "consumed", "file", "blobs")
    class ConsumedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: Attempts
        def __init__(self, key: _Optional[int] = ..., value: _Optional[_Union[Attempts, _Mapping]] = ...) -> None: ...
    class BlobsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CONSUMED_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    consumed: _containers.MessageMap[int, Attempts]
    file: str
    blobs: _containers.ScalarMap[int, int]
    def __init__(self, attempt: _Optional[int] = ..., consumed: _Optional[_Mapping[int, Attempts]] = ..., file: _Optional[str] = ..., blobs: _Optional[_Mapping[int, int]] = ...) -> None: ...
