"""The declarations of all options, from which the reference of options is generated."""

from __future__ import annotations

from penstock.config.option import BOOL, DURATION, FLOAT, INT, SIZE, STRING, STRINGS, Option, list_of

_AUTO = "execution.batch.adaptive.auto-parallelism"  # like the following, the prefix of several keys
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
    doc="Decide the parallelism of vertices from measured bytes and from what sources infer. If false, vertices get "
    "`parallelism.default`, or the largest parallelism if that is unset, and no source is queried.",
)
MIN_PARALLELISM = Option(
    f"{_AUTO}.min-parallelism",
    INT,
    default=1,
    minimum=1,
    doc="The smallest parallelism that Penstock decides for a vertex.",
    aliases=("jobmanager.adaptive-batch-scheduler.min-parallelism",),
)
MAX_PARALLELISM = Option(
    f"{_AUTO}.max-parallelism",
    INT,
    minimum=1,
    doc="The largest parallelism that Penstock decides for a vertex. If unset: `parallelism.default`; if that is "
    "unset too, 128 or four times the cluster's cores, whichever is larger.",
    aliases=("jobmanager.adaptive-batch-scheduler.max-parallelism",),
)
DATA_VOLUME_PER_TASK = Option(
    f"{_AUTO}.avg-data-volume-per-task",
    SIZE,
    default=16 * MIB,
    minimum=1,
    doc="The number of bytes that a task should read.",
    aliases=("jobmanager.adaptive-batch-scheduler.avg-data-volume-per-task",),
)
DEFAULT_SOURCE_PARALLELISM = Option(
    f"{_AUTO}.default-source-parallelism",
    INT,
    minimum=1,
    doc="The largest parallelism that a source may infer, and its parallelism if it infers none. If unset: the "
    "largest parallelism of a vertex.",
    aliases=("jobmanager.adaptive-batch-scheduler.default-source-parallelism",),
)
OPTIMIZATION_STRATEGIES = Option(
    "execution.batch.adaptive.stream-graph-optimization.strategies",
    STRINGS,
    default=(),
    doc="Import paths of your strategies, which are classes or functions (`package.module.Class`). They are called "
    "after Penstock's strategies.",
)
WHOLE_QUERY_THRESHOLD = Option(
    "execution.batch.adaptive.whole-query-threshold",
    SIZE,
    default=64 * MIB,
    minimum=0,
    doc="Spark runs a query unchanged if its sources have fewer bytes than this in total and you set nothing else "
    "about how it runs, unless `execution.native` lets DuckDB compute it faster. 0 turns this off.",
)
ENABLED = Option(
    "enabled",
    BOOL,
    default=True,
    doc="Let Penstock run the queries of a session for which `penstock.enable` was called, or of a session created "
    "after it. Set it for a single session as `spark.penstock.enabled`; it takes effect with the next query.",
)
VERIFY = Option(
    "execution.verify",
    BOOL,
    default=False,
    doc="Let every job check itself while it runs: each row is in the task that the plan says, every written row "
    "is read exactly once, broadcasts and filters keep all rows that they must keep. A failed check fails the job.",
)
NATIVE = Option(
    "execution.native",
    BOOL,
    doc="Let DuckDB, in Spark's Python workers, read Parquet files, and join and aggregate rows, if that gives the "
    "same results as Spark, and is faster. A query that is fastest on one executor becomes a single task; other "
    "queries send columns instead of rows between their steps. Spark does whatever DuckDB cannot do, and a decision "
    "says why. The package `duckdb` must be installed for every worker. If you set "
    "nothing, DuckDB computes only queries of a single task, and only in Spark's local mode.",
)
NATIVE_MEMORY = Option(
    "execution.native.memory",
    SIZE,
    default=192 * MIB,
    minimum=16 * MIB,
    doc="The memory that DuckDB may use in a task before it spills to disk; the single task of a query may use this "
    "amount for each core of its executor. If you set nothing, such a task may use a quarter of the machine's memory "
    "in Spark's local mode. The memory is outside of the JVM, so it counts as "
    "`spark.executor.memoryOverhead`, whose minimum of 384 MiB is enough for two tasks at a time.",
)
NATIVE_EXCLUDE = Option(
    "execution.native.exclude",
    STRINGS,
    default=(),
    doc="Names of expressions that Spark computes instead of DuckDB, such as `regexp_replace`: to find out whether an "
    "expression is the cause of a difference, or slow. Valid names are those of SQL functions and of Catalyst's "
    "classes, such as `RegExpReplace`, in any case. A function that Spark replaces by another, such as `nvl` by "
    "`coalesce`, counts by the other.",
)
SHADOW = Option(
    "execution.shadow",
    STRING,
    default="NO",
    choices=("NO", "ROWS", "REPORT"),
    doc="Run every query on plain Spark too and compare the rows. ROWS raises an error if they differ; REPORT only "
    "records it, as `penstock verify` does.",
)
PARALLELISM_DEFAULT = Option(
    "parallelism.default",
    INT,
    minimum=1,
    doc="The parallelism of vertices for which Penstock decides none, and the largest parallelism if no other "
    "maximum is set.",
    aliases=("table.exec.resource.default-parallelism",),
)
SCAN_PARALLELISM = Option(
    "scan.parallelism",
    INT,
    minimum=1,
    doc="The parallelism of sources, instead of the inferred parallelism. Also an option of a single table or reader.",
)
SCAN_INFER_ENABLED = Option(
    "scan.infer-parallelism.enabled",
    BOOL,
    default=True,
    doc="Let sources infer their parallelism. If false, they get `parallelism.default`, or their largest "
    "parallelism if that is unset.",
    aliases=("scan.infer-parallelism.enable",),
)
SCAN_INFER_MAX = Option(
    "scan.infer-parallelism.max",
    INT,
    minimum=1,
    doc="The largest parallelism that a source may infer, instead of the largest parallelism of a vertex. "
    "`default-source-parallelism` limits it too.",
)
HIVE_INFER_MODE = Option(
    f"{_HIVE}.mode",
    STRING,
    default="dynamic",
    choices=("dynamic", "static", "none"),
    doc="When tables of the Hive metastore infer their parallelism: dynamic, while the job runs; static, when the "
    "query is planned; none, never.",
)
HIVE_INFER_MAX = Option(
    f"{_HIVE}.max",
    INT,
    default=1000,
    minimum=1,
    doc="The largest parallelism that a table of the Hive metastore may infer.",
)
SCAN_MAX_CONNECTIONS = Option(
    "scan.max-connections",
    INT,
    minimum=1,
    doc="The largest number of simultaneous connections to a source's database. If unset: half of the free connections "
    "of the database.",
)
SOURCES_TIMEOUT = Option(
    "sources.timeout",
    DURATION,
    default=60.0,
    minimum=0.1,
    doc="How long Penstock waits for an answer of a source, catalog, broker or database before the job fails. "
    "Time in which the source's code computes in the driver does not count. A minute is long enough for a "
    "broker or database to fail over.",
)
SINK_PARALLELISM = Option(
    "sink.parallelism",
    INT,
    minimum=1,
    doc="The parallelism of sinks. If unset: the parallelism of the operators before the sink, or one decided from "
    "measured bytes if there is an exchange before it.",
)
SINK_TARGET_FILE_SIZE = Option(
    "sink.target-file-size",
    SIZE,
    default=128 * MIB,
    minimum=1,
    doc="The target size of the files that a sink with partition columns writes, in bytes on disk. Other sinks "
    "take it as an argument.",
)
SINK_AUTO_COMPACTION = Option(
    "sink.auto-compaction",
    BOOL,
    default=False,
    doc="Merge files smaller than half the target size within their folder before they become visible.",
)
SINK_PARTITION_COMMIT = Option(
    "sink.partition-commit.policy.kind",
    list_of("success-file", "metastore"),
    default=(),
    doc="What happens once all files of a partition are visible: success-file writes an empty file _SUCCESS into its "
    "folder, metastore adds the partition to the table in the metastore. Both can be set.",
)
ADAPTIVE_PARTITIONER_ENABLED = Option(
    f"{_PARTITIONER}.enabled",
    BOOL,
    default=False,
    doc="Let every rebalance and rescale, and every ``repartition(n)`` before one of your Python functions, send the "
    "next rows to the least loaded of a few consumers.",
)
ADAPTIVE_PARTITIONER_MAX_TRAVERSE = Option(
    f"{_PARTITIONER}.max-traverse-size",
    INT,
    default=4,
    minimum=2,
    doc="How many consumers are compared to find the least loaded consumer.",
)
ADAPTIVE_PARTITIONER_IDLE_TIMEOUT = Option(
    f"{_PARTITIONER}.idle-timeout",
    DURATION,
    default=1800.0,
    minimum=1,
    doc="How long a task waits for a consumer that reads no rows before the job fails.",
)
BROADCAST_JOIN_STRATEGY = Option(
    f"{_BROADCAST}.strategy",
    STRING,
    default="AUTO",
    choices=("AUTO", "RUNTIME_ONLY", "NONE"),
    doc="When a join may become a broadcast join: AUTO, when the query is planned or once a side is measured; "
    "RUNTIME_ONLY, only once a side is measured; NONE, only when the query is planned.",
)
BROADCAST_THRESHOLD = Option(
    "table.optimizer.join.broadcast-threshold",
    SIZE,
    minimum=-1,
    doc="A join side of fewer bytes may be broadcast; -1 means never. If unset: the threshold of the Spark session.",
)
PRE_AGGREGATION = Option(
    "table.optimizer.early-sums.enabled",
    BOOL,
    default=True,
    doc="Aggregate rows before they are joined with a table, if that leaves far fewer rows and the same results.",
)
DYNAMIC_FILTERING_ENABLED = Option(
    f"{_FILTERING}.enabled",
    BOOL,
    default=True,
    doc="Once a join side has finished, filter the other side by its keys, as close to the sources as possible.",
)
DYNAMIC_FILTERING_MAX_KEYS = Option(
    f"{_FILTERING}.max-keys",
    INT,
    default=8_000_000,
    minimum=1,
    doc="A finished join side with more rows than this does not filter the other side.",
)
DYNAMIC_FILTERING_EXACT_KEYS = Option(
    f"{_FILTERING}.exact-keys",
    INT,
    default=10_000,
    minimum=1,
    doc="Up to this number of rows of the finished join side, the filter has the exact keys; for more rows, their "
    "smallest and largest value and a Bloom filter.",
)
DYNAMIC_FILTERING_SELECTIVITY = Option(
    f"{_FILTERING}.selectivity",
    FLOAT,
    default=0.4,
    minimum=0,
    doc="A finished join side with more than this fraction of its source table's rows does not filter the other side.",
)
SKEWED_JOIN_STRATEGY = Option(
    f"{_SKEW}.strategy",
    STRING,
    default="AUTO",
    choices=("AUTO", "FORCED", "NONE"),
    doc="Split skewed subpartitions of a join: AUTO, if no later operator needs all rows of a key in one task; "
    "FORCED, always; NONE, never. Hot groups of an aggregate are merged in chunks, and the rows of a window's hot keys "
    "are divided by the window's order: AUTO, if other cores would be idle; FORCED, always; NONE, never.",
)
SKEWED_FACTOR = Option(
    f"{_SKEW}.skewed-factor",
    FLOAT,
    default=4.0,
    minimum=0,
    doc="A subpartition is skewed if it is more than this many times the median, and larger than the threshold.",
)
SKEWED_THRESHOLD = Option(
    f"{_SKEW}.skewed-threshold",
    SIZE,
    default=256 * MIB,
    minimum=1,
    doc="A subpartition is skewed only if it is larger than this.",
)
PIPELINE_MAX_PARALLELISM = Option(
    "pipeline.max-parallelism",
    INT,
    minimum=1,
    maximum=1 << 15,
    doc="The number of key groups (state partitions) of a stateful streaming query. If unset: the number its state "
    "has; at the first start 1.5 times its parallelism, rounded up to a power of two, and at least 128.",
)
RESCALE_ON_RESTART = Option(
    "state.rescale-on-restart",
    BOOL,
    default=False,
    doc="Rescale the state of a query that requests another number of key groups than its state has, before it "
    "starts. If false, such a query does not start.",
)
REST_ENABLED = Option(
    "rest.enabled",
    BOOL,
    default=False,
    doc="Serve the REST API and the web page from the driver, as `Environment(ui=True)` does.",
)
REST_BIND_ADDRESS = Option(
    "rest.bind-address",
    STRING,
    default="127.0.0.1",
    doc="The address on which the REST API and the web page are served. On any other address than loopback, every "
    "request needs the token.",
)
REST_PORT = Option(
    "rest.port",
    INT,
    default=8081,
    minimum=0,
    maximum=65535,
    doc="The port of the REST API and the web page; 0 means any free port, as does the default if it is in use.",
)
REST_TOKEN = Option(
    "rest.token",
    STRING,
    doc="The token that a request needs to cancel a job. If unset, Penstock generates a token and prints it with the "
    "page's address.",
)
ARCHIVE_FOLDER = Option(
    "jobmanager.archive.fs.dir",
    STRING,
    doc="The folder to which every job writes its event log, on any file system that Spark can write to. If unset, "
    "there are no event logs.",
)
RETAINED_TTL = Option(
    "historyserver.archive.retained-ttl",
    DURATION,
    doc="How long the event log of a job is kept after its last line. If unset, logs are kept forever.",
)
RETAINED_SIZE = Option(
    "historyserver.archive.retained-size",
    SIZE,
    minimum=0,
    doc="How many bytes the event logs of a folder may have in total; the oldest are removed first. If unset, there is "
    "no limit.",
)

OPTIONS: tuple[Option, ...] = tuple(value for value in dict(globals()).values() if isinstance(value, Option))
