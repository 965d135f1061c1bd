"""The options that have no name in Beam.

Beam already declares most of what a Spark runner needs, and programs pass those
names to every runner, so they are reused. ``import_hook`` loads this module during
Beam's own import: from Beam it may import only ``pipeline_options``.
"""

import argparse
from collections.abc import Mapping
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner.core.flight_limits import FLIGHT_LIMITS
from beam_spark_runner.options.state_store_options import DEFAULT_STORE_CACHE_MB

DEFAULT_ROUND_BUDGET_S = 2
DEFAULT_MIN_PAUSE_S = 180
DEFAULT_PREVIOUS_WORKER_S = 30
DEFAULT_SINGLE_TASK_BUDGET_S = 0.1
DEFAULT_SESSION_IDLE_S = 600
DEFAULT_BATCH_INTERVAL_MS = 500
DEFAULT_TIMER_BATCH = 1000
DEFAULT_STUCK_S = 1800


class SparkPortableRunnerOptions(PipelineOptions):  # type: ignore[misc]
    """Options of SparkPortableRunner that no class of Beam declares.

    Beam parses the options of all loaded classes together, and argparse raises
    an error if a name is declared twice. A program's own option takes precedence
    over ours of the same name, so that loading this package breaks no program.
    """

    @classmethod
    def _add_argparse_args(cls, parser: Any) -> None:
        names = _declared_by_programs(type(parser))
        for name, settings in DECLARED.items():
            if f"--{name}" not in names:
                parser.add_argument(f"--{name}", **settings)


DECLARED: Mapping[str, Mapping[str, Any]] = {
    "job_server_ca": {
        "metavar": "FILE",
        "help": "With --job_endpoint: a PEM file with the certificates of CAs; one of them must "
        "have signed the certificate of the job server. Default: no TLS.",
    },
    "job_server_cert": {
        "metavar": "FILE",
        "help": "With --job_server_ca: a PEM file with your certificate, for a job server that "
        "demands one.",
    },
    "job_server_key": {
        "metavar": "FILE",
        "help": "A PEM file with the private key of --job_server_cert.",
    },
    "job_server_token_file": {
        "metavar": "FILE",
        "help": "With --job_endpoint: a file with the token that the job server demands.",
    },
    "spark_conf": {
        "action": "append",
        "metavar": "KEY=VALUE",
        "help": "A Spark property, as with spark-submit --conf. May be repeated.",
    },
    "spark_session_idle_timeout": {
        "default": str(DEFAULT_SESSION_IDLE_S),
        "metavar": "SECONDS",
        "help": "The time for which a Spark that this program's pipelines have started waits for "
        f"the next pipeline, before it is stopped. Default: {DEFAULT_SESSION_IDLE_S}.",
    },
    "spark_class_archive": {
        "metavar": "DIR|off",
        "help": "The folder of a file with Spark's classes, which lets a Spark that the program "
        "starts do so sooner. The first program writes it, in a process of low priority that "
        "continues after its end. Default: beam-spark-runner in XDG_CACHE_HOME or ~/.cache.",
    },
    "show_plan": {
        "action": "store_true",
        "default": False,
        "help": "Print the plan before the pipeline runs.",
    },
    "docker_executable": {
        "metavar": "PROGRAM",
        "help": "With --environment_type=DOCKER: the program that starts containers on executors, "
        "docker or podman. Default: docker.",
    },
    "java_class_path": {
        "metavar": "staged|PATH[:PATH...]",
        "help": "Run steps in Java as processes of the executors' Java, in place of containers, "
        "with this class path and the staged jars; staged: with these alone. Default: staged, if "
        "there is no program that starts containers.",
    },
    "environment_start_timeout": {
        "metavar": "SECONDS",
        "help": "Maximum time that an SDK harness may take to start and connect. Default: 120.",
    },
    "executor_environment": {
        "default": "auto",
        "metavar": "auto|installed|archive",
        "help": "The packages of the Python workers on a cluster. installed: those that are "
        "installed there. archive: the packages of this program, which are sent as an archive. "
        "auto: the archive, if Beam or this package is missing there. Default: auto.",
    },
    "step_chunks": {
        "default": "auto",
        "metavar": "auto|off",
        "help": "Whether simple steps process chunks of elements. off: Beam's own operations pass "
        "each element through all steps of a stage before the next one. Default: auto.",
    },
    "sdf_round_budget": {
        "default": str(DEFAULT_ROUND_BUDGET_S),
        "metavar": "SECONDS",
        "help": "The time for which a task processes splittable DoFns before the remaining work is "
        "spread over the cluster; it doubles with each further round. 0: the work is never spread. "
        "Default: 2.",
    },
    "single_task_budget": {
        "default": str(DEFAULT_SINGLE_TASK_BUDGET_S),
        "metavar": "SECONDS",
        "help": "The time for which one task runs a part of the pipeline that reads few elements, "
        "for each shuffle in it, before the remaining work is spread over the cluster. 0: the work "
        "is spread from the beginning. Default: 0.1.",
    },
    "group_memory_bytes": {
        "type": int,
        "metavar": "BYTES",
        "help": "Memory that a task uses for large groups of a GroupByKey; the rest is written to "
        "disk. A pipeline that runs in its program uses as much for rows between two exchanges. "
        "Default: 16777216.",
    },
    "sort_partition_memory": {
        "metavar": "SIZE",
        "help": "Memory for the records of one sort_partition, such as 64m; the rest is sorted on "
        "disk. Default: 128m.",
    },
    "drain": {
        "action": "store_true",
        "default": False,
        "help": "Truncate restrictions of splittable DoFns before they are processed, by their "
        "provider's truncate. By default, a bounded restriction stays as it is and nothing remains "
        "of an unbounded one. With --checkpoint_dir, a streaming pipeline continues from its "
        "checkpoint and is drained.",
    },
    "drain_on_sigterm": {
        "action": "store_true",
        "default": False,
        "help": "The first SIGTERM drains a streaming pipeline that the program waits for; a "
        "second one cancels it. Without the option, the first SIGTERM cancels the pipeline.",
    },
    "checkpoint_dir": {
        "metavar": "FOLDER",
        "help": "Where a streaming pipeline commits its epochs, or with --batch_job_recovery a "
        "batch pipeline what it has run: a mounted folder that this machine and all executors "
        "share, or a folder in an object store or HDFS (s3://, gs://, abfss://, hdfs://). The same "
        "command with the same folder continues after the last commit.",
    },
    "batch_job_recovery": {
        "action": "store_true",
        "default": False,
        "help": "Store what the tasks of a batch pipeline have made in --checkpoint_dir, so that "
        "the same command continues from there after the program, Spark or a machine has died. On "
        "a job server, which needs --jobs_dir for it, the server continues the pipeline.",
    },
    "operator_coordinator_snapshot_min_pause": {
        "default": str(DEFAULT_MIN_PAUSE_S),
        "metavar": "SECONDS",
        "help": "With --batch_job_recovery: the time after which a task ends its work on "
        "splittable DoFns, so that what it has read is committed; another task continues. "
        f"Default: {DEFAULT_MIN_PAUSE_S}.",
    },
    "previous_worker_recovery_timeout": {
        "default": str(DEFAULT_PREVIOUS_WORKER_S),
        "metavar": "SECONDS",
        "help": "With --batch_job_recovery, on a Spark Connect server whose previous client has "
        "died: the time for which the next one waits until the server has finished the Spark job, "
        f"before it ends it. Default: {DEFAULT_PREVIOUS_WORKER_S}.",
    },
    "hdfs_https": {
        "action": "store_true",
        "default": False,
        "help": "Access folders of HDFS (hdfs://) over HTTPS. The CAs that are trusted are those "
        "of the package certifi, or of the PEM file in REQUESTS_CA_BUNDLE or SSL_CERT_FILE of the "
        "environment. Default: HTTP.",
    },
    "hdfs_kerberos": {
        "action": "store_true",
        "default": False,
        "help": "Authenticate to HDFS with a Kerberos ticket: that of kinit, or of the keytab in "
        "KRB5_CLIENT_KTNAME of the environment. It needs the extra kerberos of this package. "
        "Default: HDFS trusts the name in --hdfs_user.",
    },
    "savepoint_path": {
        "metavar": "FOLDER",
        "help": "A savepoint from which a streaming pipeline begins if nothing has been committed "
        "in --checkpoint_dir yet. It is copied there.",
    },
    "savepoint_every": {
        "metavar": "SECONDS",
        "help": "How often a streaming pipeline makes a savepoint of itself in --savepoint_dir, "
        "after an epoch. Default: never.",
    },
    "savepoint_dir": {
        "metavar": "FOLDER",
        "help": "With --savepoint_every: where each savepoint has its own folder, which is named "
        "by its time. Each pipeline needs its own.",
    },
    "savepoint_keep": {
        "type": int,
        "metavar": "NUMBER",
        "help": "With --savepoint_every: how many savepoints stay in --savepoint_dir. Older ones "
        "are removed, but none from which a pipeline begins. Default: 3.",
    },
    "autoscale": {
        "metavar": "MIN..MAX",
        "help": "The numbers of partitions between which a streaming pipeline changes its own, "
        "between epochs, as its load requires. Default: the number does not change.",
    },
    "state_store": {
        "metavar": "URL",
        "help": "A Redis or Valkey server in which a streaming pipeline has the state, timers and "
        "groups of its keys, in place of the disks of executors: redis://HOST:PORT/DB, rediss:// "
        "for TLS, or unix://PATH. It needs the extra redis of this package, and no durability of "
        "the server: --checkpoint_dir has everything.",
    },
    "state_store_password_file": {
        "metavar": "FILE",
        "help": "A file with the password of --state_store, on this machine and all executors. The "
        "name of the user is part of the URL (redis://USER@HOST).",
    },
    "state_store_cache_mb": {
        "type": int,
        "metavar": "MEGABYTES",
        "help": "With --state_store: the memory of each Python worker for keys that its last tasks "
        f"have read or changed, for its next ones; 0: none. Default: {DEFAULT_STORE_CACHE_MB}.",
    },
    "async_state_total_buffer_size": {
        "type": int,
        "metavar": "RECORDS",
        "help": "With --state_store: the most elements and timers that a DeclarativeKeyedProcess "
        f"processes at the same time in a task. Default: {FLIGHT_LIMITS.records}.",
    },
    "async_state_active_buffer_size": {
        "type": int,
        "metavar": "REQUESTS",
        "help": "With --state_store: the number of accesses of such a step that are sent to the "
        f"store together. Default: {FLIGHT_LIMITS.batch}.",
    },
    "async_state_active_buffer_timeout_millis": {
        "type": int,
        "metavar": "MILLISECONDS",
        "help": "With --state_store: how long such an access waits for others, if more elements "
        f"come. Default: {FLIGHT_LIMITS.wait_us // 1_000}.",
    },
    "unaligned_state_requests": {
        "action": "store_true",
        "default": False,
        "help": "With --state_store: allow an epoch to be committed before such a step has made "
        "all its reads. Those whose callbacks are all declared by name are stored, and made in "
        "the following epochs.",
    },
    "delivery_guarantee": {
        "default": "exactly_once",
        "metavar": "exactly_once|at_least_once",
        "help": "How sinks write after failures. exactly_once: as their arguments say. "
        "at_least_once: those that would write in transactions write without, sooner; what no "
        "epoch has committed when a process dies is written again. Default: exactly_once.",
    },
    "batch_interval_millis": {
        "default": str(DEFAULT_BATCH_INTERVAL_MS),
        "metavar": "MILLISECONDS",
        "help": "Intended duration of an epoch of a streaming pipeline, and least time between the "
        "beginnings of two epochs. Epochs take longer if sources have a backlog. "
        f"Default: {DEFAULT_BATCH_INTERVAL_MS}.",
    },
    "unaligned_splittable_timers": {
        "action": "store_true",
        "default": False,
        "help": "Allow an epoch of a streaming pipeline to be committed before all timers of user "
        "code that are due have fired. The others fire in the following epochs.",
    },
    "timer_fire_batch_size": {
        "type": int,
        "metavar": "TIMERS",
        "help": "With --unaligned_splittable_timers: the number of timers that an SDK harness "
        f"receives at a time. Default: {DEFAULT_TIMER_BATCH}.",
    },
    "parallel_test_streams": {
        "action": "store_true",
        "default": False,
        "help": "Run the tasks of a pipeline with a TestStream in parallel on a local master, too. "
        "By default, one Spark task runs those of many epochs, one after another, since the "
        "elements of an event are few.",
    },
    "restart": {
        "default": "auto",
        "metavar": "auto|resume|fresh",
        "help": "Whether a pipeline continues from what is committed in --checkpoint_dir. "
        "auto: if there is one. resume: there must be one. fresh: there must be none. "
        "Default: auto.",
    },
    "checkpoints_after_tasks_finish": {
        "default": "true",
        "metavar": "true|false",
        "help": "Whether epochs of a streaming pipeline are committed after tasks of some steps "
        "have finished while others continue. false: such a pipeline fails. Default: true.",
    },
    "stuck_bundle_timeout": {
        "metavar": "SECONDS",
        "help": "Maximum time for which user code may make no progress: process one element, set "
        "up a DoFn, or wait in a claim. After that, the task fails with an error that has the step "
        f"and the stack of the code. 0: no limit. Default: {DEFAULT_STUCK_S} in a streaming "
        "pipeline, otherwise 0.",
    },
    "backchannel": {
        "default": "auto",
        "metavar": "auto|files|off",
        "help": "How workers send log lines and metrics while they run. auto: to a port of this "
        "program or, if they cannot reach it, through files in --temp_location, if that is a "
        "mounted folder. files: always through files. off: not at all.",
    },
    "metrics_port": {
        "type": int,
        "metavar": "PORT",
        "help": "The port at which metrics are served as Prometheus text while the pipeline runs. "
        "0: any free port. Default: metrics are not served.",
    },
    "metrics_host": {
        "metavar": "HOST",
        "help": "With --metrics_port: the address of this machine at which the port is opened. "
        "Default: 127.0.0.1.",
    },
    "job_page_port": {
        "type": int,
        "metavar": "PORT",
        "help": "The port of this machine at which a page shows the pipeline in a browser. 0: any "
        "free port. Default: there is no page.",
    },
    "job_page_read_only": {
        "action": "store_true",
        "default": False,
        "help": "With --job_page_port: jobs cannot be cancelled, drained or saved from the page.",
    },
    "lineage_url": {
        "metavar": "URL",
        "help": "A server of OpenLineage, to which the program reports what its pipelines read and "
        "write. Default: nothing is reported.",
    },
    "sample_redaction": {
        "metavar": "MODULE:FUNCTION",
        "help": "With --experiments=enable_data_sampling: a function that workers can import. The "
        "job page shows what it returns in place of an element.",
    },
    "spark_metrics": {
        "action": "store_true",
        "default": False,
        "help": "Show the epochs, watermarks and state of a streaming pipeline among Spark's own "
        "metrics, too. On classic Spark only.",
    },
    "progress": {
        "default": "auto",
        "metavar": "auto|on|off",
        "help": "Show a progress line on stderr. auto: if stderr is a terminal; if it is not, the "
        "line is logged once a minute at level INFO. Default: auto.",
    },
}


def _declared_by_programs(parser_class: type[argparse.ArgumentParser]) -> frozenset[str]:
    """Return the option strings of the loaded classes that are neither Beam's nor ours."""
    names: set[str] = set()
    for declaring in PipelineOptions.__subclasses__():
        package = declaring.__module__.partition(".")[0]
        # By name, not by identity: a main session may hold a second copy of a class.
        if package in ("apache_beam", "beam_spark_runner"):
            continue
        scratch = parser_class(add_help=False)
        declaring._add_argparse_args(scratch)
        names.update(scratch._option_string_actions)
    return frozenset(names)
