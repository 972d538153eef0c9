package penstock.duckdb;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.hadoop.fs.Path;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.datasources.FilePartition;
import org.apache.spark.sql.execution.datasources.FileScanRDD;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.datasources.parquet.ParquetOptions;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.unsafe.types.UTF8String;

import scala.jdk.javaapi.CollectionConverters;

import penstock.bridge.Answer;
import penstock.duckdb.dialect.Declined;
import penstock.plans.Catalyst;
import penstock.plans.NumericTypes;

/** A scan of Parquet files in DuckDB, and the assignment of splits to tasks; see `NativeParts`. */
final class NativeScan {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** Returns the query for a scan's columns from a named relation. */
    static String sql(FileSourceScanExec scan, String name) throws Declined {
        HadoopFsRelation relation = scan.relation();
        if (relation.fileFormat().getClass() != ParquetFileFormat.class) {
            throw new Declined("format " + relation.fileFormat());
        }
        for (Path root : CollectionConverters.asJava(relation.location().rootPaths())) {
            String scheme = root.toUri().getScheme();
            if (scheme != null && !scheme.equals("file")) {
                throw new Declined("files that are not on a mounted disk");
            }
        }
        if (!scan.fileConstantMetadataColumns().isEmpty()) {
            throw new Declined("metadata columns of files");
        }
        if (scan.conf().parquetFieldIdReadEnabled()) {
            throw new Declined("columns that are matched by their field ids");
        }
        if (new ParquetOptions(relation.options(), scan.conf()).ignoreCorruptFiles()) {
            throw new Declined("ignoring corrupt files"); // the rows read from corrupt files depend on the reader
        }
        if (scan.conf().isParquetINT96TimestampConversion()) {
            throw new Declined("a conversion of the times of other writers");
        }
        if (scan.bucketedScan()) {
            throw new Declined("a bucketed table");
        }
        for (Expression part : Catalyst.parts(scan.partitionFilters())) {
            if (Catalyst.name(part).contains("Subquery")) {
                throw new Declined("partitions that are pruned while the query runs");
            }
        }
        for (Expression part : Catalyst.parts(scan.dataFilters())) {
            checkFilter(part);
        }
        List<Object> fileColumns = new ArrayList<>(Arrays.asList(relation.dataSchema().fieldNames()));
        // A column in both the files and the folder names has the value of the folder name.
        fileColumns.removeAll(Arrays.asList(relation.partitionSchema().fieldNames()));
        NativeFolders.checkTypes(scan);
        Set<Object> names = new HashSet<>();
        StringBuilder columns = new StringBuilder();
        for (Attribute column : Catalyst.each(scan.output())) {
            if (!fileColumns.contains(column.name()) && !NativeFolders.isPartitionColumn(scan, column)) {
                throw new Declined("a column that is not in the files");
            }
            if (!names.add(column.name().toLowerCase(Locale.ROOT))) {
                throw new Declined("columns whose names differ in case only");
            }
            columns.append(columns.length() == 0 ? "" : ", ").append('"' + column.name().replace("\"", "\"\"") + '"').append(" AS ")
                    .append(NativeSql.column(column));
        }
        return "SELECT " + (columns.length() == 0 ? "1 AS nothing" : columns) + " FROM " + name;
    }

    /** Checks a subexpression of a pushed-down filter: Spark's Parquet filters shift some dates. */
    private static void checkFilter(Expression expression) throws Declined {
        boolean isDateOrTime = isDateOrTime(expression.dataType());
        if (isDateOrTime && expression instanceof Literal) {
            NativeTypes.literal(((Literal) expression).value(), expression.dataType());
        }
        if (isDateOrTime && Catalyst.name(expression).contains("Subquery") && NativeResults.TRANSLATING.get() == null) {
            throw new Declined("a filter of files by a date or time from a subquery");
        }
        if (expression instanceof InSet && isDateOrTime(((InSet) expression).child().dataType())) {
            for (Object value : Catalyst.each(((InSet) expression).hset().toSeq())) {
                NativeTypes.literal(value, ((InSet) expression).child().dataType());
            }
        }
    }

    private static boolean isDateOrTime(DataType type) {
        return type.catalogString().equals("date") || NativeTimes.isTime(type);
    }

    /**
     * Returns the floating-point and time columns by which Spark's Parquet filters may skip row groups.
     *
     * The keys are names; a value says whether a column may be compared with zero, or with a fraction of a millisecond.
     */
    static Map<String, Object> comparedColumns(FileSourceScanExec scan) {
        Map<String, Object> columns = new TreeMap<>();
        for (Expression part : Catalyst.parts(scan.dataFilters())) {
            boolean compares = part instanceof BinaryComparison || part instanceof In || part instanceof InSet;
            for (Expression column : compares ? Catalyst.each(part.references().toSeq()) : new ArrayList<Attribute>()) {
                String name = ((Attribute) column).name();
                boolean isTime = NativeTimes.isTime(column.dataType());
                if (isTime || NumericTypes.isFloating(column.dataType())) {
                    columns.put(name, Boolean.TRUE.equals(columns.get(name)) || mayCompareSpecial(part, isTime));
                }
            }
        }
        return columns;
    }

    private static boolean mayCompareSpecial(Expression comparison, boolean isTime) {
        for (Expression operand : Catalyst.each(comparison.children())) {
            Object value = operand instanceof Literal ? ((Literal) operand).value() : null;
            boolean isOrdinary = value instanceof Number && (isTime ? ((Number) value).longValue() % 1000 == 0 : ((Number) value).doubleValue() != 0);
            if (!isOrdinary && !(operand instanceof Attribute)) {
                return true;
            }
        }
        return comparison instanceof InSet;
    }

    /** Returns the names and types of the columns read from files, or of the partition columns. */
    static List<Object> columns(FileSourceScanExec scan, boolean arePartitionColumns) throws Declined {
        List<Object> columns = new ArrayList<>();
        for (Attribute column : Catalyst.each(scan.output())) {
            if (NativeFolders.isPartitionColumn(scan, column) == arePartitionColumns) {
                columns.add(Answer.facts("name", column.name(), "type", Catalyst.type(column)));
            }
        }
        return columns;
    }

    /** Returns the name of the table's first root folder, empty without roots. */
    static String table(FileSourceScanExec scan) {
        List<?> roots = CollectionConverters.asJava(scan.relation().location().rootPaths());
        return roots.isEmpty() ? "" : ((Path) roots.get(0)).getName();
    }

    /** Returns the rebase mode for dates and times in files that do not name their writer. */
    static String rebaseMode(FileSourceScanExec scan) {
        ParquetOptions options = new ParquetOptions(scan.relation().options(), scan.conf());
        boolean readsTimes = false;
        for (Attribute column : Catalyst.each(scan.output())) {
            readsTimes |= NativeTimes.isTime(column.dataType());
        }
        boolean isCorrected = options.datetimeRebaseModeInRead().equals("CORRECTED");
        return readsTimes && isCorrected ? options.int96RebaseModeInRead() : options.datetimeRebaseModeInRead();
    }

    /** Returns an RDD with a row per task: the JSON list of the file ranges that the task reads. */
    static Object tasks(FileSourceScanExec scan) throws JsonProcessingException, Declined {
        List<InternalRow> rows = new ArrayList<>();
        for (FilePartition task : partitions(scan)) {
            List<Object> files = new ArrayList<>();
            for (PartitionedFile file : task.files()) {
                files.add(facts(file, scan));
            }
            rows.add(new GenericInternalRow(new Object[] {UTF8String.fromString(JSON.writeValueAsString(files))}));
        }
        JavaSparkContext context = JavaSparkContext.fromSparkContext(scan.session().sparkContext());
        return context.parallelize(rows, Math.max(rows.size(), 1)).rdd();
    }

    /** Returns as JSON the number of tasks, and the first range and all bytes of up to `count` evenly spaced tasks. */
    static String sample(FileSourceScanExec scan, int count) throws JsonProcessingException, Declined {
        List<?> tasks = partitions(scan);
        List<Object> files = new ArrayList<>();
        List<Object> sizes = new ArrayList<>();
        for (int i = 0; i < Math.min(count, tasks.size()); i++) {
            FilePartition task = (FilePartition) tasks.get(i * tasks.size() / Math.min(count, tasks.size()));
            if (task.files().length > 0) {
                long bytes = 0;
                for (PartitionedFile split : task.files()) {
                    bytes += split.length();
                }
                files.add(facts(task.files()[0], scan));
                sizes.add(bytes);
            }
        }
        return JSON.writeValueAsString(Answer.facts("tasks", tasks.size(), "files", files, "task_bytes", sizes));
    }

    private static List<FilePartition> partitions(FileSourceScanExec scan) {
        return Catalyst.each(((FileScanRDD) (Object) scan.inputRDDs().head()).filePartitions());
    }

    private static Map<String, Object> facts(PartitionedFile file, FileSourceScanExec scan) throws Declined {
        return NativeFolders.facts(file.filePath().toPath(), file.start(), file.length(), file.modificationTime(),
                file.fileSize(), NativeFolders.partitionValues(scan, file.partitionValues()));
    }
}
