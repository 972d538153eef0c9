package penstock;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.hadoop.fs.Path;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.FilePartition;
import org.apache.spark.sql.execution.datasources.FileScanRDD;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.datasources.parquet.ParquetOptions;
import org.apache.spark.unsafe.types.UTF8String;

import scala.jdk.javaapi.CollectionConverters;

/** What a scan of Parquet files reads, and which task reads which part of them; see `NativeParts`. */
final class NativeScan {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** The plan that stands for a scan that DuckDB does: its columns, and the rows that were counted. */
    private static final TreeNodeTag<Object> SCAN = new TreeNodeTag<Object>("penstock.native-scan");

    private NativeScan() {
    }

    /** Returns the columns of a scan as SQL, whose rows have a name. */
    static String sql(FileSourceScanExec scan, String name) throws NativeSql.Declined {
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
        if (scan.conf().parquetFieldIdReadEnabled()) {
            throw new NativeSql.Declined("columns that are found by their ids");
        }
        if (new ParquetOptions(relation.options(), scan.conf()).ignoreCorruptFiles()) {
            throw new NativeSql.Declined("corrupt files that are ignored"); // which rows of them are read depends on the reader
        }
        if (scan.bucketedScan()) {
            throw new NativeSql.Declined("a bucketed table");
        }
        for (Object filter : Catalyst.each(scan.partitionFilters())) {
            if (asks((Expression) filter)) {
                throw new NativeSql.Declined("partitions that are chosen while the query runs");
            }
        }
        for (Object filter : Catalyst.each(scan.dataFilters())) {
            checkFilter((Expression) filter);
        }
        List<Object> stored = new ArrayList<>(Arrays.asList(relation.dataSchema().fieldNames()));
        // A column that is in the files and in the names of their folders has the folder's value.
        stored.removeAll(Arrays.asList(relation.partitionSchema().fieldNames()));
        NativeFolders.checkTypes(scan);
        Set<Object> names = new HashSet<>();
        StringBuilder found = new StringBuilder();
        for (Object each : Catalyst.each(scan.output())) {
            AttributeReference column = (AttributeReference) each;
            if (!stored.contains(column.name()) && !NativeFolders.has(scan, column)) {
                throw new NativeSql.Declined("a column that is not in the files");
            }
            if (!names.add(column.name().toLowerCase(Locale.ROOT))) {
                throw new NativeSql.Declined("columns whose names differ in case only");
            }
            found.append(found.length() == 0 ? "" : ", ").append(identifier(column.name())).append(" AS ")
                    .append(NativeSql.column(column));
        }
        return "SELECT " + (found.length() == 0 ? "1 AS nothing" : found) + " FROM " + name;
    }

    private static String identifier(String name) {
        return '"' + name.replace("\"", "\"\"") + '"';
    }

    /** Checks a filter of the files: Spark's filters of Parquet take some days for others, and drop NaN. */
    private static void checkFilter(Expression one) throws NativeSql.Declined {
        boolean isDay = one.dataType().catalogString().equals("date");
        if (isDay && one instanceof Literal) {
            NativeTypes.literal(((Literal) one).value(), one.dataType());
        }
        if (isDay && Catalyst.name(one).contains("Subquery") && !NativeResults.checksValues()) {
            throw new NativeSql.Declined("a filter of files by a day that a subquery gives");
        }
        if (one instanceof InSet && ((InSet) one).child().dataType().catalogString().equals("date")) {
            scala.collection.Iterator<?> days = ((InSet) one).hset().iterator();
            while (days.hasNext()) {
                NativeTypes.literal(days.next(), ((InSet) one).child().dataType());
            }
        }
        boolean compares = one instanceof BinaryComparison || one instanceof In || one instanceof InSet;
        if (compares && NativeTypes.isFloating(Catalyst.first(one).dataType())) { // statistics of files know no NaN
            throw new NativeSql.Declined("a filter of files by floating-point numbers");
        }
        for (Object part : Catalyst.each(one.children())) {
            checkFilter((Expression) part);
        }
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

    /** Returns the names and types of the columns that are read: those in files, or those in the names of folders. */
    static List<Object> columns(FileSourceScanExec scan, boolean ofFolders) throws NativeSql.Declined {
        List<Object> found = new ArrayList<>();
        for (Object each : Catalyst.each(scan.output())) {
            AttributeReference column = (AttributeReference) each;
            if (NativeFolders.has(scan, column) == ofFolders) {
                Map<String, Object> one = new HashMap<>();
                one.put("name", column.name());
                one.put("type", Catalyst.type(column));
                found.add(one);
            }
        }
        return found;
    }

    /** Lets a plan stand for a scan, that has read some rows. */
    static void stand(SparkPlan plan, FileSourceScanExec scan, long rows) {
        plan.setTagValue(SCAN, Arrays.<Object>asList(ScanMetrics.columns(scan), rows));
    }

    /** Returns what `ScanMetrics` wants to know of a plan that stands for a scan, null of any other plan. */
    static Map<String, Object> facts(SparkPlan plan) {
        if (plan.getTagValue(SCAN).isEmpty()) {
            return null;
        }
        List<?> told = (List<?>) plan.getTagValue(SCAN).get();
        Map<String, Object> facts = new HashMap<>();
        facts.put("columns", told.get(0));
        facts.put("rows", told.get(1));
        facts.put("kept", null);
        return facts;
    }

    /** Returns what is read. */
    static String table(FileSourceScanExec scan) {
        List<?> roots = CollectionConverters.asJava(scan.relation().location().rootPaths());
        return roots.isEmpty() ? "" : ((Path) roots.get(0)).getName();
    }

    /** Returns how dates are read of files that do not tell who has written them. */
    static String calendar(FileSourceScanExec scan) {
        return new ParquetOptions(scan.relation().options(), scan.conf()).datetimeRebaseModeInRead();
    }

    /** Returns rows with one text each, of which every task gets the one that says which files it reads. */
    static Object tasks(FileSourceScanExec scan) throws JsonProcessingException, NativeSql.Declined {
        List<InternalRow> texts = new ArrayList<>();
        for (Object each : partitions(scan)) {
            List<Object> files = new ArrayList<>();
            for (PartitionedFile file : ((FilePartition) each).files()) {
                files.add(facts(file, scan));
            }
            texts.add(new GenericInternalRow(new Object[] {UTF8String.fromString(JSON.writeValueAsString(files))}));
        }
        JavaSparkContext context = JavaSparkContext.fromSparkContext(scan.session().sparkContext());
        return context.parallelize(texts, Math.max(texts.size(), 1)).rdd();
    }

    /**
     * Returns how many tasks there are, the files that some of them read first, and the bytes of all that these read, as
     * JSON: those of tasks that lie as far apart as can be.
     */
    static String sample(FileSourceScanExec scan, int wanted) throws JsonProcessingException, NativeSql.Declined {
        List<?> tasks = partitions(scan);
        List<Object> files = new ArrayList<>();
        List<Object> sizes = new ArrayList<>();
        for (int i = 0; i < Math.min(wanted, tasks.size()); i++) {
            FilePartition task = (FilePartition) tasks.get(i * tasks.size() / Math.min(wanted, tasks.size()));
            if (task.files().length > 0) {
                Map<String, Object> one = facts(task.files()[0], scan);
                long bytes = 0;
                for (PartitionedFile file : task.files()) {
                    bytes += file.length();
                }
                files.add(one);
                sizes.add(bytes);
            }
        }
        Map<String, Object> found = new HashMap<>();
        found.put("tasks", tasks.size());
        found.put("files", files);
        found.put("task_bytes", sizes);
        return JSON.writeValueAsString(found);
    }

    private static List<?> partitions(FileSourceScanExec scan) {
        Object rows = scan.inputRDDs().head();
        return Catalyst.each(((FileScanRDD) rows).filePartitions());
    }

    private static Map<String, Object> facts(PartitionedFile file, FileSourceScanExec scan) throws NativeSql.Declined {
        return NativeFolders.facts(file.filePath().toPath(), file.start(), file.length(), file.modificationTime(),
                file.fileSize(), NativeFolders.values(scan, file.partitionValues()));
    }
}
