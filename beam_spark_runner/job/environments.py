"""Where user code is to run: from options to the environment that the pipeline names."""

import json
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any

import grpc
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions
from apache_beam.portability import python_urns
from apache_beam.portability.api import (
    beam_fn_api_pb2_grpc,
    beam_runner_api_pb2,
    endpoints_pb2,
)
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer
from apache_beam.transforms import environments

from beam_spark_runner.core import urns
from beam_spark_runner.core.environments import EnvironmentKind
from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.harness.serving import stop_serving


def default_environment(
    kind: EnvironmentKind, options: PipelineOptions, artifacts: Sequence[Any] = ()
) -> Any:
    """Return the environment of steps that name none: a Beam ``Environment``.

    Args:
        kind: where code is to run.
        options: the pipeline's.
        artifacts: files that the environment depends on, if code runs in SDK harnesses of its own.

    Raises:
        OptionsError: --environment_config is not what its kind needs.
    """
    portable = options.view_as(PortableOptions)
    match kind:
        case "embedded":
            return environments.EmbeddedPythonEnvironment.default()
        case "process":
            return _process(portable, artifacts)
        case "external":
            return _external(portable, artifacts)
        case "loopback":
            return environments.PythonLoopbackEnvironment(
                capabilities=environments.python_sdk_capabilities()
            )


def _process(portable: Any, artifacts: Sequence[Any]) -> environments.Environment:
    config: Any = {
        "command": portable.lookup_environment_option("process_command"),
        "env": _variables(portable.lookup_environment_option("process_variables")),
    }
    if portable.environment_config:
        config = _json_object(portable.environment_config)
        unknown = sorted(config.keys() - {"command", "env", "os", "arch"})
        if unknown:
            raise OptionsError(
                "environment_config", f"PROCESS knows command and env, not {', '.join(unknown)}"
            )
    return environments.ProcessEnvironment(
        config.get("command") or "",
        env={str(name): str(value) for name, value in (config.get("env") or {}).items()},
        capabilities=environments.python_sdk_capabilities(),
        artifacts=artifacts,
    )


def _json_object(text: str) -> dict[str, Any]:
    try:
        config = json.loads(text)
    except ValueError as error:
        raise OptionsError("environment_config", f"{text!r} is no JSON: {error}") from error
    if not isinstance(config, dict) or not isinstance(config.get("env") or {}, dict):
        raise OptionsError(
            "environment_config",
            f'{text!r} is not of the form {{"command": …, "env": {{NAME: VALUE}}}}',
        )
    return config


def _variables(text: str | None) -> dict[str, str]:
    pairs = [item.partition("=") for item in text.split(",")] if text else []
    for name, separator, _ in pairs:
        if not separator:
            raise OptionsError("environment_options", f"process_variables: {name!r} has no value")
    return {name: value for name, _, value in pairs}


def _external(portable: Any, artifacts: Sequence[Any]) -> environments.Environment:
    config = portable.environment_config or portable.lookup_environment_option(
        "external_service_address"
    )
    if not config:
        raise OptionsError(
            "environment_config", "EXTERNAL needs the address of a worker pool: HOST:PORT"
        )
    url: Any = config
    params: Any = {}
    if environments.looks_like_json(config):
        found = _json_object(config)
        url, params = found.get("url"), found.get("params") or {}
    if not url or not isinstance(params, dict):
        raise OptionsError(
            "environment_config", f"{config!r} has no url of a worker pool, or no object of params"
        )
    return environments.ExternalEnvironment(
        url,
        params=params,
        capabilities=environments.python_sdk_capabilities(),
        artifacts=artifacts,
    )


def runs_in_this_process(pipeline: beam_runner_api_pb2.Pipeline) -> bool:
    """Whether the pipeline's code, or some of it, is to run here (LOOPBACK)."""
    return bool(_loopback_environments(pipeline))


def _loopback_environments(
    pipeline: beam_runner_api_pb2.Pipeline,
) -> list[beam_runner_api_pb2.Environment]:
    return [
        each
        for each in pipeline.components.environments.values()
        if each.urn == python_urns.EMBEDDED_PYTHON_LOOPBACK
    ]


def serve_loopback(pipeline: beam_runner_api_pb2.Pipeline, cache_bytes: int) -> Callable[[], None]:
    """Serve this process as a worker pool, for the pipeline's code to run in it.

    The pipeline is changed: its LOOPBACK environments name the pool's address.

    Args:
        pipeline: to be changed.
        cache_bytes: of state that each harness may keep.

    Returns:
        What ends the pool.
    """
    pool = grpc.server(futures.ThreadPoolExecutor(thread_name_prefix="beam-loopback"))
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(
        BeamFnExternalWorkerPoolServicer(use_process=False, state_cache_size=cache_bytes), pool
    )
    port = pool.add_insecure_port("127.0.0.1:0")
    pool.start()
    payload = beam_runner_api_pb2.ExternalPayload(
        endpoint=endpoints_pb2.ApiServiceDescriptor(url=f"127.0.0.1:{port}")
    )
    for each in _loopback_environments(pipeline):
        each.urn = urns.ENVIRONMENT_EXTERNAL
        each.payload = payload.SerializeToString()

    def stop() -> None:
        stop_serving(pool)

    return stop
