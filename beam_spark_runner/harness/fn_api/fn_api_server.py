"""The one port on which this process serves the Fn API to its SDK harnesses."""

import threading
from concurrent import futures
from typing import Any

import grpc
from apache_beam.portability.api import (
    beam_artifact_api_pb2_grpc,
    beam_fn_api_pb2,
    beam_fn_api_pb2_grpc,
    beam_provision_api_pb2_grpc,
)

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.harness.fn_api.connection import SdkConnection
from beam_spark_runner.harness.fn_api.doorman import STRANGER, Doorman, worker_id_in
from beam_spark_runner.harness.fn_api.services.artifact_service import ArtifactService
from beam_spark_runner.harness.fn_api.services.control_service import ControlService
from beam_spark_runner.harness.fn_api.services.data_service import DataService
from beam_spark_runner.harness.fn_api.services.logging_service import LoggingService
from beam_spark_runner.harness.fn_api.services.provision_service import ProvisionService
from beam_spark_runner.harness.fn_api.services.state_service import StateService
from beam_spark_runner.harness.fn_api.services.status_service import StatusService
from beam_spark_runner.harness.fn_api.serving import stop_serving

_MAX_CALLS = 4_096  # of all harnesses; a thread each, made when it is needed
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # SDKs ping twice a minute, also while no call is running.
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.so_reuseport", 0),
]


class FnApiServer:
    """Serves on loopback. Calls without the id of a known harness are rejected.

    gRPC starts threads: this process must not fork without exec afterwards.

    Threads: any.
    """

    def __init__(self) -> None:
        self._connections: dict[str, SdkConnection] = {}
        self._lock = threading.Lock()
        self._threads = futures.ThreadPoolExecutor(_MAX_CALLS, thread_name_prefix="fn-api")
        self._server = grpc.server(
            self._threads,
            maximum_concurrent_rpcs=_MAX_CALLS,
            interceptors=[Doorman(self._is_known)],
            options=_OPTIONS,
        )
        connection_of = self._connection_of
        for add, service in (
            (
                beam_fn_api_pb2_grpc.add_BeamFnControlServicer_to_server,
                ControlService(lambda call: connection_of(call).control, self._descriptor_of),
            ),
            (
                beam_fn_api_pb2_grpc.add_BeamFnDataServicer_to_server,
                DataService(lambda call: connection_of(call).data),
            ),
            (
                beam_fn_api_pb2_grpc.add_BeamFnStateServicer_to_server,
                StateService(lambda call: connection_of(call).state),
            ),
            (
                beam_fn_api_pb2_grpc.add_BeamFnLoggingServicer_to_server,
                LoggingService(lambda call: connection_of(call).logs),
            ),
            (
                beam_provision_api_pb2_grpc.add_ProvisionServiceServicer_to_server,
                ProvisionService(lambda call: connection_of(call).provision),
            ),
            (
                beam_artifact_api_pb2_grpc.add_ArtifactRetrievalServiceServicer_to_server,
                ArtifactService(lambda call: connection_of(call).provision),
            ),
            (
                beam_fn_api_pb2_grpc.add_BeamFnWorkerStatusServicer_to_server,
                StatusService(lambda call: connection_of(call).status),
            ),
        ):
            add(service, self._server)
        port = self._server.add_insecure_port("127.0.0.1:0")
        self.url = f"127.0.0.1:{port}"
        self._server.start()

    def add(self, connection: SdkConnection) -> None:
        """Accept calls of a harness."""
        with self._lock:
            self._connections[connection.worker_id] = connection

    def remove(self, connection: SdkConnection) -> None:
        """Reject further calls of a harness, and end its streams."""
        with self._lock:
            self._connections.pop(connection.worker_id, None)
        connection.close()

    def stop(self) -> None:
        """Close the port and all streams."""
        for connection in list(self._connections.values()):
            self.remove(connection)
        stop_serving(self._server, self._threads)

    def _is_known(self, worker_id: str) -> bool:
        return worker_id in self._connections

    def _connection_of(self, context: Any) -> SdkConnection:
        connection = self._connections.get(worker_id_in(context.invocation_metadata()))
        if connection is None:  # it was removed after the interceptor had accepted the call
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "this harness is not expected any more")
            raise InvariantError("abort returned")
        return connection

    def _descriptor_of(
        self, context: Any, id_: str
    ) -> beam_fn_api_pb2.ProcessBundleDescriptor | None:
        if worker_id_in(context.invocation_metadata()):
            return self._connection_of(context).control.descriptors.get(id_)
        for connection in list(self._connections.values()):
            if (descriptor := connection.control.descriptors.get(id_)) is not None:
                return descriptor
        context.abort(grpc.StatusCode.UNAUTHENTICATED, STRANGER)
        raise InvariantError("abort returned")
