from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetWatermarksRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class GetWatermarksResponse(_message.Message):
    __slots__ = ("steps",)
    class StepsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: StepWatermarks
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[StepWatermarks, _Mapping]] = ...) -> None: ...
    STEPS_FIELD_NUMBER: _ClassVar[int]
    steps: _containers.MessageMap[str, StepWatermarks]
    def __init__(self, steps: _Optional[_Mapping[str, StepWatermarks]] = ...) -> None: ...

class StepWatermarks(_message.Message):
    __slots__ = ("input_us", "output_us")
    INPUT_US_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_US_FIELD_NUMBER: _ClassVar[int]
    input_us: int
    output_us: int
    def __init__(self, input_us: _Optional[int] = ..., output_us: _Optional[int] = ...) -> None: ...

class MakeSavepointRequest(_message.Message):
    __slots__ = ("job_id", "path")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    path: str
    def __init__(self, job_id: _Optional[str] = ..., path: _Optional[str] = ...) -> None: ...

class MakeSavepointResponse(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...
