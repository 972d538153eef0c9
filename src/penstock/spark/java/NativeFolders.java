package penstock;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.hadoop.fs.Path;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StructType;

import scala.collection.immutable.Seq;

/** The partition folders of a scanned table, their files, and the columns whose values are in the folder names. */
final class NativeFolders {
    /** Each folder adds a subquery: planning more would take DuckDB longer than most queries run. */
    private static final int MAX_FOLDERS = 100;

    private NativeFolders() {
    }

    /** Whether a column is a partition column, with its values in folder names. */
    static boolean isPartitionColumn(FileSourceScanExec scan, AttributeReference column) {
        for (String name : scan.relation().partitionSchema().fieldNames()) {
            if (name.equals(column.name())) {
                return true;
            }
        }
        return false;
    }

    /** Checks that DuckDB supports the types of the partition columns. */
    static void checkTypes(FileSourceScanExec scan) throws NativeSql.Declined {
        for (Object element : Catalyst.each(scan.output())) {
            AttributeReference column = (AttributeReference) element;
            if (isPartitionColumn(scan, column)) {
                NativeTypes.literal(null, column.dataType());
            }
        }
    }

    /** Lists the folders of a scan and checks that DuckDB supports their partition values. */
    static void check(FileSourceScanExec scan) throws NativeSql.Declined {
        if (!NativeScan.columns(scan, true).isEmpty()) {
            for (Object folder : listed(scan)) {
                values(scan, ((PartitionDirectory) folder).values());
            }
        }
    }

    /** Returns the partition values of a folder as SQL, in the order of the partition columns. */
    static List<Object> values(FileSourceScanExec scan, InternalRow row) throws NativeSql.Declined {
        StructType schema = scan.relation().partitionSchema();
        List<Object> literals = new ArrayList<>();
        for (Object element : Catalyst.each(scan.output())) {
            AttributeReference column = (AttributeReference) element;
            if (isPartitionColumn(scan, column)) {
                int index = schema.fieldIndex(column.name());
                Object value = row.get(index, column.dataType());
                if (value instanceof Decimal && ((Decimal) value).scale() != ((DecimalType) column.dataType()).scale()) {
                    // Spark keeps the scale of the folder name, but reads the value in the scale of the column.
                    throw new NativeSql.Declined("a decimal folder name with another scale than its column");
                }
                literals.add(NativeTypes.literal(value, column.dataType()));
            }
        }
        return literals;
    }

    /** Returns all files, unsplit. They are listed here, as the scan itself would broadcast settings for each table. */
    static List<Object> files(FileSourceScanExec scan) throws NativeSql.Declined {
        Set<Object> folders = new HashSet<>();
        List<Object> files = new ArrayList<>();
        for (Object element : listed(scan)) {
            PartitionDirectory folder = (PartitionDirectory) element;
            List<Object> values = values(scan, folder.values());
            folders.add(values);
            if (folders.size() > MAX_FOLDERS) {
                throw new NativeSql.Declined("more than " + MAX_FOLDERS + " folders of a table");
            }
            for (Object status : Catalyst.each(folder.files().toSeq())) {
                FileStatusWithMetadata file = (FileStatusWithMetadata) status;
                if (file.getLen() > 0) { // Spark skips empty files
                    files.add(facts(file.getPath(), 0, file.getLen(), file.getModificationTime(), file.getLen(), values));
                }
            }
        }
        return files;
    }

    static Map<String, Object> facts(Path path, long start, long length, long modified, long size, List<Object> values) {
        Map<String, Object> facts = new HashMap<>();
        facts.put("path", path.toString());
        facts.put("start", start);
        facts.put("length", length);
        facts.put("modified", modified);
        facts.put("size", size);
        facts.put("values", values);
        return facts;
    }

    private static List<?> listed(FileSourceScanExec scan) {
        Seq<Expression> none = PythonUtils.toSeq(Collections.emptyList());
        return Catalyst.each(scan.relation().location().listFiles(scan.partitionFilters(), none));
    }
}
