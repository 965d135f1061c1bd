from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WorkerFrame(_message.Message):
    __slots__ = ("token", "worker", "messages_sent", "log_entries", "left_out", "progress", "finalized", "awaits_end", "has_torn_down", "offers", "stacks")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_SENT_FIELD_NUMBER: _ClassVar[int]
    LOG_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    FINALIZED_FIELD_NUMBER: _ClassVar[int]
    AWAITS_END_FIELD_NUMBER: _ClassVar[int]
    HAS_TORN_DOWN_FIELD_NUMBER: _ClassVar[int]
    OFFERS_FIELD_NUMBER: _ClassVar[int]
    STACKS_FIELD_NUMBER: _ClassVar[int]
    token: str
    worker: str
    messages_sent: int
    log_entries: _containers.RepeatedScalarFieldContainer[bytes]
    left_out: int
    progress: _containers.RepeatedCompositeFieldContainer[TaskProgress]
    finalized: _containers.RepeatedScalarFieldContainer[int]
    awaits_end: bool
    has_torn_down: bool
    offers: _containers.RepeatedCompositeFieldContainer[OfferedRows]
    stacks: _containers.RepeatedCompositeFieldContainer[Stacks]
    def __init__(self, token: _Optional[str] = ..., worker: _Optional[str] = ..., messages_sent: _Optional[int] = ..., log_entries: _Optional[_Iterable[bytes]] = ..., left_out: _Optional[int] = ..., progress: _Optional[_Iterable[_Union[TaskProgress, _Mapping]]] = ..., finalized: _Optional[_Iterable[int]] = ..., awaits_end: bool = ..., has_torn_down: bool = ..., offers: _Optional[_Iterable[_Union[OfferedRows, _Mapping]]] = ..., stacks: _Optional[_Iterable[_Union[Stacks, _Mapping]]] = ...) -> None: ...

class Stacks(_message.Message):
    __slots__ = ("request", "text")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    request: int
    text: str
    def __init__(self, request: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class OfferedRows(_message.Message):
    __slots__ = ("attempt", "run", "level", "rows")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    run: int
    level: int
    rows: bytes
    def __init__(self, attempt: _Optional[int] = ..., run: _Optional[int] = ..., level: _Optional[int] = ..., rows: _Optional[bytes] = ...) -> None: ...

class TaskProgress(_message.Message):
    __slots__ = ("attempt", "run", "monitoring_infos", "deferred", "work", "samples")
    class DeferredEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Deferred
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Deferred, _Mapping]] = ...) -> None: ...
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    MONITORING_INFOS_FIELD_NUMBER: _ClassVar[int]
    DEFERRED_FIELD_NUMBER: _ClassVar[int]
    WORK_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    run: int
    monitoring_infos: _containers.RepeatedScalarFieldContainer[bytes]
    deferred: _containers.MessageMap[str, Deferred]
    work: bytes
    samples: _containers.RepeatedCompositeFieldContainer[Sample]
    def __init__(self, attempt: _Optional[int] = ..., run: _Optional[int] = ..., monitoring_infos: _Optional[_Iterable[bytes]] = ..., deferred: _Optional[_Mapping[str, Deferred]] = ..., work: _Optional[bytes] = ..., samples: _Optional[_Iterable[_Union[Sample, _Mapping]]] = ...) -> None: ...

class Sample(_message.Message):
    __slots__ = ("collection", "text")
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    collection: str
    text: str
    def __init__(self, collection: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class Deferred(_message.Message):
    __slots__ = ("count", "hold_us")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    HOLD_US_FIELD_NUMBER: _ClassVar[int]
    count: int
    hold_us: int
    def __init__(self, count: _Optional[int] = ..., hold_us: _Optional[int] = ...) -> None: ...

class DriverFrame(_message.Message):
    __slots__ = ("accepted", "wants_memory", "wants_stacks", "job_ended")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    WANTS_MEMORY_FIELD_NUMBER: _ClassVar[int]
    WANTS_STACKS_FIELD_NUMBER: _ClassVar[int]
    JOB_ENDED_FIELD_NUMBER: _ClassVar[int]
    accepted: _containers.RepeatedScalarFieldContainer[int]
    wants_memory: int
    wants_stacks: int
    job_ended: bool
    def __init__(self, accepted: _Optional[_Iterable[int]] = ..., wants_memory: _Optional[int] = ..., wants_stacks: _Optional[int] = ..., job_ended: bool = ...) -> None: ...
