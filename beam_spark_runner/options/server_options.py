"""The options of the job server."""

import argparse
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.options.metrics_address import LOOPBACK, MetricsAddress, metrics_address
from beam_spark_runner.options.page_address import PageAddress, page_address
from beam_spark_runner.options.server_access import ServerAccess, check_server_access, is_loopback
from beam_spark_runner.options.values import (
    IN_PROCESS,
    MAX_BYTES,
    MAX_SECONDS,
    archive_folder,
    at_least_one,
    master,
    seconds,
    size,
    spark_conf,
)

DEFAULT_JOB_PORT, DEFAULT_ARTIFACT_PORT = 8099, 8098  # those of Beam's other job servers
DEFAULT_MAX_JOBS = 10
DEFAULT_MAX_WAITING = 1_000
_MAX_JOBS = 100_000
DEFAULT_WAITING_BYTES = 1 << 30
DEFAULT_ARTIFACT_BYTES = 4 << 30
DEFAULT_EVENT_BUFFER_BYTES = 1 << 20
DEFAULT_EVENT_FLUSH_S = 1.0
DEFAULT_PREPARE_S = 300  # pipelines take some seconds at most; hashing staged files may take longer


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Every option of the job server, validated."""

    job_host: str = LOOPBACK  # the address at which it listens
    advertised_host: str | None = None  # the host that is announced to clients. None: derived
    job_port: int = DEFAULT_JOB_PORT  # 0: any free port
    artifact_port: int = DEFAULT_ARTIFACT_PORT  # 0: any free port
    artifacts_dir: str | None = None  # for staged files; may be a URL. None: a temporary folder
    jobs_dir: str | None = None  # of jobs that continue; may be a URL. None: none do
    max_artifact_bytes: int = DEFAULT_ARTIFACT_BYTES  # of one job
    max_concurrent_jobs: int = DEFAULT_MAX_JOBS
    max_waiting_jobs: int = DEFAULT_MAX_WAITING  # prepared pipelines included
    prepare_timeout_s: int = DEFAULT_PREPARE_S
    max_waiting_bytes: int = DEFAULT_WAITING_BYTES  # of memory, of these jobs together
    spark_master_url: str | None = None
    spark_conf: tuple[tuple[str, str], ...] = ()
    shared_storage: str | None = None  # --temp_location
    environment_overrides: str = ""  # --environment_config: JSON
    java_class_path: str | None = None  # of pipelines that name none
    access: ServerAccess = field(default_factory=ServerAccess)  # how clients authenticate
    job_name: str | None = "beam job server"  # the name of the Spark application
    session_idle_s: float = 0.0  # its Spark ends with it
    class_archive: str | None = None  # --spark_class_archive: a folder. None: off
    event_buffer_bytes: int = DEFAULT_EVENT_BUFFER_BYTES  # --job_event_store_write_buffer_size
    event_flush_s: float = DEFAULT_EVENT_FLUSH_S  # --job_event_store_flush_interval
    metrics: MetricsAddress | None = None  # where all jobs' metrics are served. None: not served
    page: PageAddress | None = None  # where the page of all jobs is served. None: not served


def _master(url: str | None) -> str | None:
    if url == IN_PROCESS:
        raise OptionsError(
            "spark_master_url",
            f"{IN_PROCESS} runs a pipeline in the program that builds it, without a job server",
        )
    return master(url)


def parse_server_options(arguments: Sequence[str]) -> ServerConfig:
    """Parse and validate a command line.

    Raises:
        OptionsError: An option is wrong.
        SystemExit: argparse has printed help, or an error.
    """
    values = _parser().parse_args(arguments)
    access = ServerAccess(
        cert=values.tls_cert or None,
        key=values.tls_key or None,
        ca=values.tls_ca or None,
        token_file=values.client_token_file or None,
    )
    check_server_access(access)
    if access.cert is not None and values.insecure:
        raise OptionsError(
            "insecure", "cannot be used together with --tls_cert; leave one of them out"
        )
    if access.cert is None and not (values.insecure or is_loopback(values.job_host)):
        raise OptionsError(
            "job_host",
            f"other machines can reach {values.job_host}, and whoever can connect can run code "
            "here; set --tls_cert and --tls_key, or --insecure if your network protects this port",
        )
    page = page_address(
        values.job_page_port, values.job_page_host, is_read_only=values.job_page_read_only
    )
    if page and access.cert is None and not (values.insecure or is_loopback(page.host)):
        raise OptionsError(
            "job_page_host",
            f"other machines can reach {page.host}, and whoever can connect can cancel jobs; set "
            "--tls_cert and --tls_key, or --insecure if your network protects this port",
        )
    return ServerConfig(
        job_host=values.job_host,
        advertised_host=_host("advertised_host", values.advertised_host),
        job_port=_port("job_port", values.job_port),
        artifact_port=_port("artifact_port", values.artifact_port),
        artifacts_dir=values.artifacts_dir or None,
        jobs_dir=values.jobs_dir or None,
        max_artifact_bytes=at_least_one("max_artifact_bytes", values.max_artifact_bytes, MAX_BYTES),
        max_concurrent_jobs=at_least_one(
            "max_concurrent_jobs", values.max_concurrent_jobs, _MAX_JOBS
        ),
        max_waiting_jobs=at_least_one("max_waiting_jobs", values.max_waiting_jobs, _MAX_JOBS),
        max_waiting_bytes=at_least_one("max_waiting_bytes", values.max_waiting_bytes, MAX_BYTES),
        prepare_timeout_s=at_least_one("prepare_timeout", values.prepare_timeout, MAX_SECONDS),
        spark_master_url=_master(values.spark_master_url),
        spark_conf=tuple(spark_conf(values.spark_conf).items()),
        class_archive=archive_folder(values.spark_class_archive),
        shared_storage=values.temp_location or None,
        environment_overrides=values.environment_config or "",
        java_class_path=values.java_class_path or None,
        access=access,
        event_buffer_bytes=size(
            "job_event_store_write_buffer_size", values.job_event_store_write_buffer_size
        )
        or DEFAULT_EVENT_BUFFER_BYTES,
        event_flush_s=seconds(
            "job_event_store_flush_interval", values.job_event_store_flush_interval
        ),
        metrics=metrics_address(values.metrics_port, values.metrics_host),
        page=page,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="beam-spark-job-server",
        description="Runs the Beam pipelines that clients submit over Beam's Job API, in one Spark "
        "application.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--job_host", default=LOOPBACK, help="The address to listen at. Default: %(default)s."
    )
    parser.add_argument(
        "--advertised_host",
        metavar="HOST",
        help="The host that the server announces to clients, which send files to its "
        "--artifact_port. Needed if clients reach the server by another name: through the "
        "published ports of a container, or a tunnel. Default: --job_host; if that is any address "
        "(0.0.0.0), the name of the machine.",
    )
    parser.add_argument(
        "--job_port",
        type=int,
        default=DEFAULT_JOB_PORT,
        help="The port of the job service, for clients' --job_endpoint. 0: any free port. Default: "
        "%(default)s.",
    )
    parser.add_argument(
        "--artifact_port",
        type=int,
        default=DEFAULT_ARTIFACT_PORT,
        help="The port for files, which is announced to clients. 0: any free port. Default: "
        "%(default)s.",
    )
    parser.add_argument(
        "--artifacts_dir",
        metavar="FOLDER",
        help="Where the files that clients stage are stored until their jobs end: a folder, or a "
        "URL of an object store (s3://, gs://, abfss://). Default: a temporary folder.",
    )
    parser.add_argument(
        "--jobs_dir",
        metavar="FOLDER",
        help="Where streams, and jobs with --batch_job_recovery, are stored until they end, so "
        "that the next server with this folder continues them: a folder that the server and all "
        "executors share, or a URL of an object store (s3://, gs://, abfss://). Default: nowhere; "
        "jobs with --batch_job_recovery are refused.",
    )
    parser.add_argument(
        "--max_artifact_bytes",
        type=int,
        metavar="BYTES",
        default=DEFAULT_ARTIFACT_BYTES,
        help="The maximum size of all files that are staged for one job. Default: %(default)s.",
    )
    parser.add_argument(
        "--max_concurrent_jobs",
        type=int,
        metavar="JOBS",
        default=DEFAULT_MAX_JOBS,
        help="How many jobs run at a time; further jobs wait. Default: %(default)s.",
    )
    parser.add_argument(
        "--max_waiting_jobs",
        type=int,
        metavar="JOBS",
        default=DEFAULT_MAX_WAITING,
        help="The maximum number of jobs that wait and of prepared pipelines that do not run yet, "
        "together; more are refused. Default: %(default)s.",
    )
    parser.add_argument(
        "--prepare_timeout",
        type=int,
        metavar="SECONDS",
        default=DEFAULT_PREPARE_S,
        help="Maximum time that preparing a pipeline may take; then it is refused. Default: "
        "%(default)s.",
    )
    parser.add_argument(
        "--max_waiting_bytes",
        type=int,
        metavar="BYTES",
        default=DEFAULT_WAITING_BYTES,
        help="The maximum memory of jobs that wait and of prepared pipelines, together, estimated "
        "as three times the size of their pipelines and options; more are refused. Default: "
        "%(default)s.",
    )
    parser.add_argument(
        "--job_event_store_write_buffer_size",
        metavar="SIZE",
        help="With --jobs_dir: states and messages of a job are recorded when they have this size, "
        "such as 64k. Default: 1m.",
    )
    parser.add_argument(
        "--job_event_store_flush_interval",
        type=float,
        metavar="SECONDS",
        default=DEFAULT_EVENT_FLUSH_S,
        help="With --jobs_dir: states and messages of a job are recorded after this time, even if "
        "there are few; in an object store, after ten seconds at least. Default: %(default)s.",
    )
    parser.add_argument(
        "--metrics_port",
        type=int,
        metavar="PORT",
        help="The port at which the metrics of all jobs are served as Prometheus text. 0: any free "
        "port. Default: metrics are not served.",
    )
    parser.add_argument(
        "--metrics_host",
        metavar="HOST",
        help="With --metrics_port: the address of this machine at which the port is opened. "
        "Default: 127.0.0.1.",
    )
    parser.add_argument(
        "--job_page_port",
        type=int,
        metavar="PORT",
        help="The port at which a page shows all jobs in a browser. 0: any free port. Default: "
        "there is no page.",
    )
    parser.add_argument(
        "--job_page_host",
        metavar="HOST",
        help="With --job_page_port: the address of this machine at which the port is opened. "
        "Default: 127.0.0.1.",
    )
    parser.add_argument(
        "--job_page_read_only",
        action="store_true",
        help="With --job_page_port: jobs cannot be cancelled, drained or saved from the page.",
    )
    parser.add_argument(
        "--spark_master_url",
        metavar="URL",
        help="The Spark to use: local[N], spark://…, sc://…. Default: the master that spark-submit "
        "or Spark's configuration names, otherwise local[*]. Clients' values have no effect.",
    )
    parser.add_argument(
        "--spark_conf",
        action="append",
        metavar="KEY=VALUE",
        help="A Spark property, as with spark-submit --conf. May be repeated.",
    )
    parser.add_argument(
        "--spark_class_archive",
        metavar="DIR|off",
        help="The folder of a file with Spark's classes, which lets Spark start sooner. A server "
        "or program that finds none has it written after its end. Default: beam-spark-runner in "
        "XDG_CACHE_HOME or ~/.cache.",
    )
    parser.add_argument(
        "--temp_location",
        metavar="FOLDER",
        help="Storage that the server and all executors share: a folder or a URL. Clients' values "
        "have no effect.",
    )
    parser.add_argument(
        "--environment_config",
        metavar="JSON",
        help="Environments that replace those that pipelines name, by URN, as JSON: "
        '{"beam:env:docker:v1": {"environment_type": "PROCESS", "environment_config": {…}}}.',
    )
    parser.add_argument(
        "--java_class_path",
        metavar="staged|PATH[:PATH...]",
        help="Of pipelines that do not have this option: run their steps in Java as processes, "
        "with this class path and the staged jars; staged: with these alone.",
    )
    parser.add_argument(
        "--tls_cert",
        metavar="FILE",
        help="A PEM file with the server's certificate, and the intermediate certificates up to "
        "its CA. Default: no TLS.",
    )
    parser.add_argument(
        "--tls_key", metavar="FILE", help="A PEM file with the private key of --tls_cert."
    )
    parser.add_argument(
        "--tls_ca",
        metavar="FILE",
        help="A PEM file: clients must have a certificate that one of these CAs has signed.",
    )
    parser.add_argument(
        "--client_token_file",
        metavar="FILE",
        help="A file with a token that clients must send with each call.",
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="Allow a --job_host that other machines can reach, without TLS.",
    )
    return parser


def _host(option: str, host: str | None) -> str | None:
    """Check a host name or address; with colons, it must be an IPv6 address."""
    if not host:
        return None
    bare = host.strip("[]")
    if ":" in bare:
        try:
            ipaddress.IPv6Address(bare)
        except ValueError as error:
            raise OptionsError(
                option, f"{host} is not a host; ports are set by --job_port and --artifact_port"
            ) from error
    if "/" in bare or " " in bare:
        raise OptionsError(option, f"{host} is not a host")
    return bare


def _port(option: str, port: int) -> int:
    if not 0 <= port <= 65535:
        raise OptionsError(option, f"{port} is not a port: 0 to 65535")
    return port
