from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PaneState(_message.Message):
    __slots__ = ("finished", "counts", "due_us", "has_news", "hold_us", "panes", "later_panes", "is_closed", "has_ended", "inline", "bags", "stored", "stored_bytes", "merged_bytes")
    class CountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class DueUsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    DUE_US_FIELD_NUMBER: _ClassVar[int]
    HAS_NEWS_FIELD_NUMBER: _ClassVar[int]
    HOLD_US_FIELD_NUMBER: _ClassVar[int]
    PANES_FIELD_NUMBER: _ClassVar[int]
    LATER_PANES_FIELD_NUMBER: _ClassVar[int]
    IS_CLOSED_FIELD_NUMBER: _ClassVar[int]
    HAS_ENDED_FIELD_NUMBER: _ClassVar[int]
    INLINE_FIELD_NUMBER: _ClassVar[int]
    BAGS_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MERGED_BYTES_FIELD_NUMBER: _ClassVar[int]
    finished: _containers.RepeatedScalarFieldContainer[int]
    counts: _containers.ScalarMap[int, int]
    due_us: _containers.ScalarMap[int, int]
    has_news: bool
    hold_us: int
    panes: int
    later_panes: int
    is_closed: bool
    has_ended: bool
    inline: bytes
    bags: _containers.RepeatedScalarFieldContainer[bytes]
    stored: int
    stored_bytes: int
    merged_bytes: int
    def __init__(self, finished: _Optional[_Iterable[int]] = ..., counts: _Optional[_Mapping[int, int]] = ..., due_us: _Optional[_Mapping[int, int]] = ..., has_news: bool = ..., hold_us: _Optional[int] = ..., panes: _Optional[int] = ..., later_panes: _Optional[int] = ..., is_closed: bool = ..., has_ended: bool = ..., inline: _Optional[bytes] = ..., bags: _Optional[_Iterable[bytes]] = ..., stored: _Optional[int] = ..., stored_bytes: _Optional[int] = ..., merged_bytes: _Optional[int] = ...) -> None: ...

class TimerOwner(_message.Message):
    __slots__ = ("key", "transform")
    KEY_FIELD_NUMBER: _ClassVar[int]
    TRANSFORM_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    transform: str
    def __init__(self, key: _Optional[bytes] = ..., transform: _Optional[str] = ...) -> None: ...

class StoredTimer(_message.Message):
    __slots__ = ("family", "tag", "window", "domain", "fires_us", "hold_us", "pane")
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    FIRES_US_FIELD_NUMBER: _ClassVar[int]
    HOLD_US_FIELD_NUMBER: _ClassVar[int]
    PANE_FIELD_NUMBER: _ClassVar[int]
    family: str
    tag: str
    window: bytes
    domain: str
    fires_us: int
    hold_us: int
    pane: bytes
    def __init__(self, family: _Optional[str] = ..., tag: _Optional[str] = ..., window: _Optional[bytes] = ..., domain: _Optional[str] = ..., fires_us: _Optional[int] = ..., hold_us: _Optional[int] = ..., pane: _Optional[bytes] = ...) -> None: ...

class RecordLeft(_message.Message):
    __slots__ = ("key", "element", "timer", "drops_window", "has_begun", "variables", "requests")
    class VariablesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    KEY_FIELD_NUMBER: _ClassVar[int]
    ELEMENT_FIELD_NUMBER: _ClassVar[int]
    TIMER_FIELD_NUMBER: _ClassVar[int]
    DROPS_WINDOW_FIELD_NUMBER: _ClassVar[int]
    HAS_BEGUN_FIELD_NUMBER: _ClassVar[int]
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    element: bytes
    timer: StoredTimer
    drops_window: bool
    has_begun: bool
    variables: _containers.ScalarMap[str, bytes]
    requests: _containers.RepeatedCompositeFieldContainer[RequestLeft]
    def __init__(self, key: _Optional[bytes] = ..., element: _Optional[bytes] = ..., timer: _Optional[_Union[StoredTimer, _Mapping]] = ..., drops_window: bool = ..., has_begun: bool = ..., variables: _Optional[_Mapping[str, bytes]] = ..., requests: _Optional[_Iterable[_Union[RequestLeft, _Mapping]]] = ...) -> None: ...

class RequestLeft(_message.Message):
    __slots__ = ("state", "method", "arguments", "continuation")
    STATE_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    CONTINUATION_FIELD_NUMBER: _ClassVar[int]
    state: str
    method: str
    arguments: bytes
    continuation: bytes
    def __init__(self, state: _Optional[str] = ..., method: _Optional[str] = ..., arguments: _Optional[bytes] = ..., continuation: _Optional[bytes] = ...) -> None: ...

class Link(_message.Message):
    __slots__ = ("epoch", "attempt", "bytes", "lap", "key")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    LAP_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    attempt: int
    bytes: int
    lap: int
    key: bytes
    def __init__(self, epoch: _Optional[int] = ..., attempt: _Optional[int] = ..., bytes: _Optional[int] = ..., lap: _Optional[int] = ..., key: _Optional[bytes] = ...) -> None: ...

class DeltaEnd(_message.Message):
    __slots__ = ("chain", "records", "changes", "known", "since")
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    chain: _containers.RepeatedCompositeFieldContainer[Link]
    records: int
    changes: int
    known: _containers.RepeatedCompositeFieldContainer[Version]
    since: Version
    def __init__(self, chain: _Optional[_Iterable[_Union[Link, _Mapping]]] = ..., records: _Optional[int] = ..., changes: _Optional[int] = ..., known: _Optional[_Iterable[_Union[Version, _Mapping]]] = ..., since: _Optional[_Union[Version, _Mapping]] = ...) -> None: ...

class Version(_message.Message):
    __slots__ = ("epoch", "attempt")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    attempt: int
    def __init__(self, epoch: _Optional[int] = ..., attempt: _Optional[int] = ...) -> None: ...

class CopyTag(_message.Message):
    __slots__ = ("boot", "chain")
    BOOT_FIELD_NUMBER: _ClassVar[int]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    boot: str
    chain: _containers.RepeatedCompositeFieldContainer[Link]
    def __init__(self, boot: _Optional[str] = ..., chain: _Optional[_Iterable[_Union[Link, _Mapping]]] = ...) -> None: ...
