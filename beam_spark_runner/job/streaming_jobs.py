"""Server and client stubs of the service ``StreamingJobs`` of ``protos/streaming_jobs.proto``.

They are what gRPC's code generator would write.
"""

from typing import Any, Protocol

import grpc

from beam_spark_runner._generated import streaming_jobs_pb2

_SERVICE = "beam_spark_runner.v1.StreamingJobs"
_MESSAGES: dict[str, tuple[Any, Any]] = {
    "GetWatermarks": (
        streaming_jobs_pb2.GetWatermarksRequest,
        streaming_jobs_pb2.GetWatermarksResponse,
    ),
    "MakeSavepoint": (
        streaming_jobs_pb2.MakeSavepointRequest,
        streaming_jobs_pb2.MakeSavepointResponse,
    ),
}


class StreamingJobsServicer(Protocol):
    """The interface that a server implements; see the proto."""

    def GetWatermarks(self, request: Any, context: Any) -> Any: ...
    def MakeSavepoint(self, request: Any, context: Any) -> Any: ...


def add_to_server(servicer: StreamingJobsServicer, server: grpc.Server) -> None:
    """Register the service with a gRPC server."""
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            getattr(servicer, name),
            request_deserializer=request.FromString,
            response_serializer=response.SerializeToString,
        )
        for name, (request, response) in _MESSAGES.items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))


class StreamingJobsStub:
    """The client's stub of the service."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.GetWatermarks, self.MakeSavepoint = (
            channel.unary_unary(
                f"/{_SERVICE}/{name}",
                request_serializer=request.SerializeToString,
                response_deserializer=response.FromString,
            )
            for name, (request, response) in _MESSAGES.items()
        )
