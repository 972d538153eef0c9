"""All options of Penstock. The reference page of the docs is made from this file."""

from __future__ import annotations

from penstock.config.option import BOOL, DURATION, FLOAT, INT, SIZE, STRING, STRINGS, Option

_AUTO = "execution.batch.adaptive.auto-parallelism"
_PARTITIONER = "taskmanager.network.adaptive-partitioner"
_BROADCAST = "table.optimizer.adaptive-broadcast-join"
_FILTERING = "table.optimizer.dynamic-filtering"
_SKEW = "table.optimizer.skewed-join-optimization"
_HIVE = "table.exec.hive.infer-source-parallelism"
MIB = 1 << 20

AUTO_PARALLELISM_ENABLED = Option(
    f"{_AUTO}.enabled",
    BOOL,
    default=True,
    doc="Whether the parallelism of vertices is decided from measured bytes; if not, `parallelism.default` is used.",
)
MIN_PARALLELISM = Option(
    f"{_AUTO}.min-parallelism",
    INT,
    default=1,
    minimum=1,
    doc="The smallest parallelism that is decided for a vertex.",
    aliases=("jobmanager.adaptive-batch-scheduler.min-parallelism",),
)
MAX_PARALLELISM = Option(
    f"{_AUTO}.max-parallelism",
    INT,
    default=None,
    minimum=1,
    doc="The largest parallelism that is decided for a vertex; if unset `parallelism.default`, and without that "
    "128 or four times the cluster's cores, whichever is larger.",
    aliases=("jobmanager.adaptive-batch-scheduler.max-parallelism",),
)
DATA_VOLUME_PER_TASK = Option(
    f"{_AUTO}.avg-data-volume-per-task",
    SIZE,
    default=16 * MIB,
    minimum=1,
    doc="How many bytes a task should read.",
    aliases=("jobmanager.adaptive-batch-scheduler.avg-data-volume-per-task",),
)
DEFAULT_SOURCE_PARALLELISM = Option(
    f"{_AUTO}.default-source-parallelism",
    INT,
    default=None,
    minimum=1,
    doc="The upper bound for what a source infers, and its parallelism where it infers nothing; "
    "if unset, the bound of all vertices.",
    aliases=("jobmanager.adaptive-batch-scheduler.default-source-parallelism",),
)
OPTIMIZATION_STRATEGIES = Option(
    "execution.batch.adaptive.stream-graph-optimization.strategies",
    STRINGS,
    default=(),
    doc="Import paths of further strategies (`package.module.Class`), called after those of Penstock.",
)
WHOLE_QUERY_THRESHOLD = Option(
    "execution.batch.adaptive.whole-query-threshold",
    SIZE,
    default=64 * MIB,
    minimum=0,
    doc="A query whose sources hold fewer bytes than this in all, and of which nothing else was said, is handed to "
    "Spark whole; 0 turns that off.",
)
VERIFY = Option(
    "execution.verify",
    BOOL,
    default=False,
    doc="Whether every job checks itself while it runs: each row that a step reads lies where the plan says, all that "
    "was written is read exactly once, broadcasts and filters keep what they must. A breach fails the job.",
)
SHADOW = Option(
    "execution.shadow",
    STRING,
    default="NO",
    choices=("NO", "ROWS", "REPORT"),
    doc="Whether every query is run by plain Spark as well and the rows are compared: ROWS raises where they differ, "
    "REPORT only keeps it, as `penstock verify` does. It checks a job from outside, its result alone.",
)
PARALLELISM_DEFAULT = Option(
    "parallelism.default",
    INT,
    default=None,
    minimum=1,
    doc="The global parallelism: used where nothing is decided, and the bound of decisions where no other is set.",
)
SCAN_PARALLELISM = Option(
    "scan.parallelism",
    INT,
    default=None,
    minimum=1,
    doc="The parallelism of sources, instead of what they would infer; also an option of a single table or reader.",
)
SCAN_INFER_ENABLED = Option(
    "scan.infer-parallelism.enabled",
    BOOL,
    default=True,
    doc="Whether sources are asked for their parallelism; if not, the global parallelism is used.",
    aliases=("scan.infer-parallelism.enable",),
)
SCAN_INFER_MAX = Option(
    "scan.infer-parallelism.max",
    INT,
    default=None,
    minimum=1,
    doc="The most tasks an inferring source may get; if unset, the bound of all vertices.",
)
HIVE_INFER_MODE = Option(
    f"{_HIVE}.mode",
    STRING,
    default="dynamic",
    choices=("dynamic", "static", "none"),
    doc="When tables of the Hive metastore infer parallelism: as a job reaches them, when it is planned, or never.",
)
HIVE_INFER_MAX = Option(
    f"{_HIVE}.max",
    INT,
    default=1000,
    minimum=1,
    doc="The most tasks that a table of the Hive metastore infers, be it as a job reaches it or when it is planned.",
)
SCAN_MAX_CONNECTIONS = Option(
    "scan.max-connections",
    INT,
    default=None,
    minimum=1,
    doc="The most connections at a time to the database of a source; if unset, half of those it has free.",
)
SOURCES_TIMEOUT = Option(
    "sources.timeout",
    DURATION,
    default=60.0,
    minimum=0.1,
    doc="How long a source, catalogue, broker or database may leave a question unanswered before the job fails; time "
    "in which it works on the answer in this process does not count. A minute is long enough for a broker or "
    "database to fail over.",
)
SINK_PARALLELISM = Option(
    "sink.parallelism",
    INT,
    default=None,
    minimum=1,
    doc="The parallelism of sinks; if unset, that of the upstream where chained, else decided by volume.",
)
SINK_TARGET_FILE_SIZE = Option(
    "sink.target-file-size",
    SIZE,
    default=128 * MIB,
    minimum=1,
    doc="The size that the files of a sink with partition columns should have on disk; other sinks say it themselves.",
)
SINK_AUTO_COMPACTION = Option(
    "sink.auto-compaction",
    BOOL,
    default=False,
    doc="Whether files of half the target size and less are merged within their folder before they become visible.",
)
SINK_PARTITION_COMMIT = Option(
    "sink.partition-commit.policy.kind",
    STRINGS,
    default=(),
    doc="What is done once all files of a partition are visible: success-file, metastore, or both.",
)
ADAPTIVE_PARTITIONER_ENABLED = Option(
    f"{_PARTITIONER}.enabled",
    BOOL,
    default=False,
    doc="Whether every rebalance and rescale gives its next records to the idlest of a few channels.",
)
ADAPTIVE_PARTITIONER_MAX_TRAVERSE = Option(
    f"{_PARTITIONER}.max-traverse-size",
    INT,
    default=4,
    minimum=2,
    doc="How many channels are compared before one is chosen.",
)
ADAPTIVE_PARTITIONER_IDLE_TIMEOUT = Option(
    f"{_PARTITIONER}.idle-timeout",
    DURATION,
    default=1800.0,
    minimum=1,
    doc="How long a writer waits for a consumer that does not ask for more rows before the job fails.",
)
BROADCAST_JOIN_STRATEGY = Option(
    f"{_BROADCAST}.strategy",
    STRING,
    default="AUTO",
    choices=("AUTO", "RUNTIME_ONLY", "NONE"),
    doc="When joins may become broadcast joins: AUTO also when planned, RUNTIME_ONLY once a side is measured.",
)
BROADCAST_THRESHOLD = Option(
    "table.optimizer.join.broadcast-threshold",
    SIZE,
    default=None,
    minimum=-1,
    doc="A join side below this size may be broadcast, -1 never; if unset, the Spark session's own threshold.",
)
DYNAMIC_FILTERING_ENABLED = Option(
    f"{_FILTERING}.enabled",
    BOOL,
    default=True,
    doc="Whether a join side that has finished filters the other side, as near to its sources as can be.",
)
DYNAMIC_FILTERING_MAX_KEYS = Option(
    f"{_FILTERING}.max-keys",
    INT,
    default=8_000_000,
    minimum=1,
    doc="A join side of more rows than this gives no filter.",
)
DYNAMIC_FILTERING_EXACT_KEYS = Option(
    f"{_FILTERING}.exact-keys",
    INT,
    default=10_000,
    minimum=1,
    doc="Up to so many rows the filter holds the exact keys; beyond, their bounds and a Bloom filter.",
)
DYNAMIC_FILTERING_SELECTIVITY = Option(
    f"{_FILTERING}.selectivity",
    FLOAT,
    default=0.4,
    minimum=0,
    doc="A join side filters the other only if at most this part of the rows its keys come from is left of it.",
)
SKEWED_JOIN_STRATEGY = Option(
    f"{_SKEW}.strategy",
    STRING,
    default="AUTO",
    choices=("AUTO", "FORCED", "NONE"),
    doc="Whether skewed subpartitions of a join are split: AUTO where no operator behind it needs them whole.",
)
SKEWED_FACTOR = Option(
    f"{_SKEW}.skewed-factor",
    FLOAT,
    default=4.0,
    minimum=0,
    doc="A subpartition is skewed if it is larger than this many times the median, and than the threshold.",
)
SKEWED_THRESHOLD = Option(
    f"{_SKEW}.skewed-threshold",
    SIZE,
    default=256 * MIB,
    minimum=1,
    doc="A subpartition below this size is never skewed.",
)
PIPELINE_MAX_PARALLELISM = Option(
    "pipeline.max-parallelism",
    INT,
    default=None,
    minimum=1,
    maximum=1 << 15,
    doc="The number of key groups (state partitions) of a stateful streaming query; if unset, that of its state, and "
    "at the first start half as much again as its parallelism, as a power of two, at least 128.",
)
RESCALE_ON_RESTART = Option(
    "state.rescale-on-restart",
    BOOL,
    default=False,
    doc="Whether a query whose state has another max parallelism than it asks for is rescaled before it starts.",
)
REST_ENABLED = Option(
    "rest.enabled",
    BOOL,
    default=False,
    doc="Whether a driver serves the REST API and the page beside its jobs; `Environment(ui=True)` does so too.",
)
REST_BIND_ADDRESS = Option(
    "rest.bind-address",
    STRING,
    default="127.0.0.1",
    doc="Where the API and the page listen; on another address than loopback every request needs the token.",
)
REST_PORT = Option(
    "rest.port",
    INT,
    default=8081,
    minimum=0,
    maximum=65535,
    doc="The port of the API and the page; 0, or one that is taken, means any that is free.",
)
REST_TOKEN = Option(
    "rest.token",
    STRING,
    default=None,
    doc="What a request must bring to cancel a job; if unset, one is made up and shown with the page's address.",
)
ARCHIVE_FOLDER = Option(
    "jobmanager.archive.fs.dir",
    STRING,
    default=None,
    doc="A folder that every job leaves its event log in, on any file system Spark can write to; none if unset.",
)

OPTIONS: tuple[Option, ...] = tuple(value for value in dict(globals()).values() if isinstance(value, Option))
