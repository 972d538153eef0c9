package penstock;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.hadoop.fs.Path;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec;
import org.apache.spark.sql.execution.aggregate.HashAggregateExec;
import org.apache.spark.sql.execution.aggregate.SortAggregateExec;
import org.apache.spark.sql.execution.datasources.FilePartition;
import org.apache.spark.sql.execution.datasources.FileScanRDD;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.datasources.parquet.ParquetOptions;
import org.apache.spark.sql.execution.exchange.Exchange;
import org.apache.spark.sql.execution.joins.BroadcastHashJoinExec;
import org.apache.spark.unsafe.types.UTF8String;

import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Finds the parts of a physical plan that DuckDB can run: a scan, and what is right above it; see `native_leaves`. */
public final class NativeLeaves {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String ROWS_STAY_MANY = "no aggregate makes its rows few";

    /** A part of a plan as SQL, over the columns of one scan. */
    private static final class Part {
        final String sql;
        final FileSourceScanExec scan;
        final boolean aggregates;
        /** The sides that were broadcast to its joins, the lowest first. */
        final List<Object> builds;

        Part(String sql, FileSourceScanExec scan, boolean aggregates, List<Object> builds) {
            this.sql = sql;
            this.scan = scan;
            this.aggregates = aggregates;
            this.builds = builds;
        }

        /** Returns a query over this one. */
        Part above(String query) {
            return new Part(query, scan, aggregates, builds);
        }
    }

    /** Returns the largest parts that can be run, and for each scan that is in none of them why. */
    public Answer find(SparkPlan plan) throws JsonProcessingException {
        List<Object> facts = new ArrayList<>();
        List<Object> handles = new ArrayList<>();
        visit(plan, null, facts, handles);
        return Answer.of(facts, handles);
    }

    private static void visit(SparkPlan plan, String above, List<Object> facts, List<Object> handles) {
        Map<String, Object> found = new HashMap<>();
        String why = null;
        try {
            Part part = part(plan);
            List<Object> columns = new ArrayList<>();
            for (Object column : Catalyst.each(plan.output())) {
                Map<String, Object> one = new HashMap<>();
                one.put("name", NativeSql.column((AttributeReference) column));
                one.put("type", Catalyst.type((Expression) column));
                columns.add(one);
            }
            if (columns.isEmpty()) {
                throw new NativeSql.Declined("no columns");
            }
            found.put("sql", part.sql);
            found.put("columns", columns);
            found.put("read", read(part.scan));
            found.put("table", table(part.scan));
            found.put("aggregates", part.aggregates);
            found.put("builds", part.builds.size());
            found.put("calendar", new ParquetOptions(part.scan.relation().options(), part.scan.conf()).datetimeRebaseModeInRead());
            found.put("above", above);
            facts.add(found);
            handles.add(plan);
            return;
        } catch (NativeSql.Declined declined) {
            why = declined.getMessage();
            if (plan instanceof FileSourceScanExec) {
                found.put("declined", declined.getMessage());
                found.put("table", table((FileSourceScanExec) plan));
                facts.add(found);
                handles.add(plan);
                return;
            }
        }
        for (Object child : Catalyst.each(plan.children())) {
            visit((SparkPlan) child, why, facts, handles);
        }
    }

    private static String table(FileSourceScanExec scan) {
        List<?> roots = CollectionConverters.asJava(scan.relation().location().rootPaths());
        return roots.isEmpty() ? "" : ((Path) roots.get(0)).getName();
    }

    private static Part part(SparkPlan plan) throws NativeSql.Declined {
        if (plan instanceof FileSourceScanExec) {
            return scanned((FileSourceScanExec) plan);
        }
        if (plan instanceof ProjectExec) {
            Part below = part(((ProjectExec) plan).child());
            return below.above("SELECT " + named(((ProjectExec) plan).projectList()) + " FROM (" + below.sql + ")");
        }
        if (plan instanceof FilterExec) {
            Part below = part(((FilterExec) plan).child());
            return below.above("SELECT * FROM (" + below.sql + ") WHERE " + NativeSql.condition(((FilterExec) plan).condition()));
        }
        if (plan instanceof BroadcastHashJoinExec) {
            NativeJoin join = new NativeJoin((BroadcastHashJoinExec) plan);
            Part below = part(join.streamed);
            String joined = join.of(below.sql, below.builds.size());
            below.builds.add(join.build);
            return below.above(joined);
        }
        if (plan instanceof HashAggregateExec || plan instanceof SortAggregateExec) {
            return aggregated((BaseAggregateExec) plan, part((SparkPlan) Catalyst.each(plan.children()).get(0)));
        }
        throw new NativeSql.Declined(plan instanceof Exchange ? ROWS_STAY_MANY : "operator " + Catalyst.name(plan));
    }

    private static String named(Seq<NamedExpression> expressions) throws NativeSql.Declined {
        StringBuilder found = new StringBuilder();
        for (Object each : Catalyst.each(expressions)) {
            NamedExpression one = (NamedExpression) each;
            found.append(found.length() == 0 ? "" : ", ").append(NativeSql.of((Expression) each)).append(" AS c")
                    .append(one.exprId().id());
        }
        return found.length() == 0 ? "1 AS nothing" : found.toString();
    }

    private static Part scanned(FileSourceScanExec scan) throws NativeSql.Declined {
        HadoopFsRelation relation = scan.relation();
        if (relation.fileFormat().getClass() != ParquetFileFormat.class) {
            throw new NativeSql.Declined("format " + relation.fileFormat());
        }
        for (Object root : CollectionConverters.asJava(relation.location().rootPaths())) {
            String scheme = ((Path) root).toUri().getScheme();
            if (scheme != null && !scheme.equals("file")) {
                throw new NativeSql.Declined("files that are not on a mounted disk");
            }
        }
        if (!scan.fileConstantMetadataColumns().isEmpty()) {
            throw new NativeSql.Declined("columns that tell of files");
        }
        if (scan.conf().getConfString("spark.sql.parquet.fieldId.read.enabled", "false").equals("true")) {
            throw new NativeSql.Declined("columns that are found by their ids");
        }
        if (scan.bucketedScan()) {
            throw new NativeSql.Declined("a bucketed table");
        }
        for (Object filter : Catalyst.each(scan.partitionFilters())) {
            if (asks((Expression) filter)) {
                throw new NativeSql.Declined("partitions that are chosen while the query runs");
            }
        }
        List<Object> stored = new ArrayList<>(Arrays.asList(relation.dataSchema().fieldNames()));
        // A column that is in the files and in the names of their folders has the folder's value.
        stored.removeAll(Arrays.asList(relation.partitionSchema().fieldNames()));
        StringBuilder found = new StringBuilder();
        for (Object each : Catalyst.each(scan.output())) {
            AttributeReference column = (AttributeReference) each;
            if (!stored.contains(column.name())) {
                throw new NativeSql.Declined("a column that is not in the files");
            }
            found.append(found.length() == 0 ? "" : ", ").append(identifier(column.name())).append(" AS ")
                    .append(NativeSql.column(column));
        }
        return new Part("SELECT " + (found.length() == 0 ? "1 AS nothing" : found) + " FROM {scan}", scan, false,
                new ArrayList<>());
    }

    private static String identifier(String name) {
        return '"' + name.replace("\"", "\"\"") + '"';
    }

    /** Whether an expression asks another query. */
    private static boolean asks(Expression one) {
        if (Catalyst.name(one).contains("Subquery")) {
            return true;
        }
        for (Object part : Catalyst.each(one.children())) {
            if (asks((Expression) part)) {
                return true;
            }
        }
        return false;
    }

    /** Returns what a task sums up of its rows before they are exchanged. */
    private static Part aggregated(BaseAggregateExec plan, Part below) throws NativeSql.Declined {
        NativeAggregate aggregate = new NativeAggregate(plan);
        return new Part("SELECT " + aggregate.columns + " FROM (" + below.sql + ")" + aggregate.groups, below.scan, true,
                below.builds);
    }

    private static List<Object> read(FileSourceScanExec scan) throws NativeSql.Declined {
        List<Object> found = new ArrayList<>();
        for (Object each : Catalyst.each(scan.output())) {
            AttributeReference column = (AttributeReference) each;
            Map<String, Object> one = new HashMap<>();
            one.put("name", column.name());
            one.put("type", Catalyst.type(column));
            found.add(one);
        }
        return found;
    }

    /** Writes the rows of a broadcast side of a leaf to a file. */
    public void writeBuild(SparkPlan leaf, int number, String path) throws Exception {
        NativeJoin.write((SparkPlan) part(leaf).builds.get(number), path);
    }

    /** Returns rows with one text each, of which every task gets the one that says which files it reads. */
    public Object tasks(SparkPlan leaf) throws JsonProcessingException, NativeSql.Declined {
        FileSourceScanExec scan = part(leaf).scan;
        Object rows = scan.inputRDDs().head();
        List<InternalRow> texts = new ArrayList<>();
        for (Object each : Catalyst.each(((FileScanRDD) rows).filePartitions())) {
            List<Object> files = new ArrayList<>();
            for (PartitionedFile file : ((FilePartition) each).files()) {
                Map<String, Object> one = new HashMap<>();
                one.put("path", file.filePath().toPath().toString());
                one.put("start", file.start());
                one.put("length", file.length());
                one.put("modified", file.modificationTime());
                one.put("size", file.fileSize());
                files.add(one);
            }
            texts.add(new GenericInternalRow(new Object[] {UTF8String.fromString(JSON.writeValueAsString(files))}));
        }
        JavaSparkContext context = JavaSparkContext.fromSparkContext(scan.session().sparkContext());
        return context.parallelize(texts, Math.max(texts.size(), 1)).rdd();
    }

    /** Returns a plan with some of its parts replaced. */
    public SparkPlan replaced(SparkPlan plan, List<?> old, List<?> made) {
        for (int i = 0; i < old.size(); i++) {
            if (old.get(i) == plan) {
                SparkPlan other = (SparkPlan) made.get(i);
                other.copyTagsFrom(plan);
                return other;
            }
        }
        if (plan.children().isEmpty()) {
            return plan;
        }
        List<SparkPlan> children = new ArrayList<>();
        for (Object child : Catalyst.each(plan.children())) {
            children.add(replaced((SparkPlan) child, old, made));
        }
        Object copy = plan.withNewChildren(PythonUtils.toSeq(children));
        return (SparkPlan) copy;
    }
}
