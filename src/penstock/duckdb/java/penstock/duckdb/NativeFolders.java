package penstock.duckdb;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StructType;

import penstock.bridge.Answer;
import penstock.duckdb.dialect.Declined;
import penstock.plans.Catalyst;

/** The partition folders of a scanned table, their files, and the columns whose values are in the folder names. */
final class NativeFolders {
    /** Each folder adds a subquery; planning more of them takes DuckDB longer than running most queries. */
    private static final int MAX_FOLDERS = 100;

    static boolean isPartitionColumn(FileSourceScanExec scan, Attribute column) {
        return Arrays.asList(scan.relation().partitionSchema().fieldNames()).contains(column.name());
    }

    /** Checks that DuckDB supports the types of the partition columns. */
    static void checkTypes(FileSourceScanExec scan) throws Declined {
        for (Attribute column : Catalyst.each(scan.output())) {
            if (isPartitionColumn(scan, column)) {
                NativeTypes.literal(null, column.dataType()); // declines other types
            }
        }
    }

    /** Checks that DuckDB supports the partition values that a scan reads. */
    static void check(FileSourceScanExec scan) throws Declined {
        if (!NativeScan.columns(scan, true).isEmpty()) { // the scan reads partition columns
            for (PartitionDirectory folder : partitionFolders(scan)) {
                partitionValues(scan, folder.values());
            }
        }
    }

    /** Returns the values of the partition columns that a scan reads, as SQL and in the order of its output. */
    static List<Object> partitionValues(FileSourceScanExec scan, InternalRow row) throws Declined {
        StructType schema = scan.relation().partitionSchema();
        List<Object> literals = new ArrayList<>();
        for (Attribute column : Catalyst.each(scan.output())) {
            if (isPartitionColumn(scan, column)) {
                int index = schema.fieldIndex(column.name());
                Object value = row.get(index, column.dataType());
                if (value instanceof Decimal && ((Decimal) value).scale() != ((DecimalType) column.dataType()).scale()) {
                    // Spark keeps the scale of the folder name, but reads the value in the scale of the column.
                    throw new Declined("a decimal folder name with another scale than its column");
                }
                literals.add(NativeTypes.literal(value, column.dataType()));
            }
        }
        return literals;
    }

    /** Returns the nonempty files, not divided into splits: to list splits, a scan would broadcast settings. */
    static List<Object> files(FileSourceScanExec scan) throws Declined {
        Set<Object> folders = new HashSet<>();
        List<Object> files = new ArrayList<>();
        for (PartitionDirectory folder : partitionFolders(scan)) {
            List<Object> values = partitionValues(scan, folder.values());
            folders.add(values);
            if (folders.size() > MAX_FOLDERS) {
                throw new Declined("more than " + MAX_FOLDERS + " folders of a table");
            }
            for (FileStatusWithMetadata file : Catalyst.each(folder.files().toSeq())) {
                if (file.getLen() > 0) { // Spark skips empty files
                    files.add(facts(file.getPath(), 0, file.getLen(), file.getModificationTime(), file.getLen(), values));
                }
            }
        }
        return files;
    }

    static Map<String, Object> facts(Path path, long start, long length, long modifiedMs, long size, List<Object> partitionValues) {
        return Answer.facts("path", path.toString(), "start", start, "length", length, "modified_ms", modifiedMs, "size", size,
                "partition_values", partitionValues);
    }

    private static List<PartitionDirectory> partitionFolders(FileSourceScanExec scan) {
        return Catalyst.each(scan.relation().location().listFiles(scan.partitionFilters(), Catalyst.<Expression>emptySeq()));
    }
}
