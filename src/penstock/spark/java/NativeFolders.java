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

/** The folders of a table that is read, their files, and the columns whose values their names tell. */
final class NativeFolders {
    /** Each folder is a part of the query: to plan more would take DuckDB longer than most queries run. */
    private static final int MOST_FOLDERS = 100;

    private NativeFolders() {
    }

    /** Whether a column's values are those of folders. */
    static boolean has(FileSourceScanExec scan, AttributeReference column) {
        for (String name : scan.relation().partitionSchema().fieldNames()) {
            if (name.equals(column.name())) {
                return true;
            }
        }
        return false;
    }

    /** Checks that DuckDB has the types of the columns that come from the names of folders. */
    static void checkTypes(FileSourceScanExec scan) throws NativeSql.Declined {
        for (Object each : Catalyst.each(scan.output())) {
            AttributeReference column = (AttributeReference) each;
            if (has(scan, column)) {
                NativeTypes.literal(null, column.dataType());
            }
        }
    }

    /** Checks that DuckDB has all values of the folders that are read. They are listed for it. */
    static void check(FileSourceScanExec scan) throws NativeSql.Declined {
        if (!NativeScan.columns(scan, true).isEmpty()) {
            for (Object folder : listed(scan)) {
                values(scan, ((PartitionDirectory) folder).values());
            }
        }
    }

    /** Returns the values of a folder as SQL, one for each column that comes from its name. */
    static List<Object> values(FileSourceScanExec scan, InternalRow row) throws NativeSql.Declined {
        StructType schema = scan.relation().partitionSchema();
        List<Object> found = new ArrayList<>();
        for (Object each : Catalyst.each(scan.output())) {
            AttributeReference column = (AttributeReference) each;
            if (has(scan, column)) {
                int place = schema.fieldIndex(column.name());
                Object value = row.get(place, column.dataType());
                if (value instanceof Decimal && ((Decimal) value).scale() != ((DecimalType) column.dataType()).scale()) {
                    // Spark's value of a folder keeps the digits of its name, and its rows read them in the column's scale.
                    throw new NativeSql.Declined("a decimal folder name with another scale than its column");
                }
                found.add(NativeTypes.literal(value, column.dataType()));
            }
        }
        return found;
    }

    /** Returns all files, whole. They are listed: to ask the scan would broadcast settings for each table. */
    static List<Object> files(FileSourceScanExec scan) throws NativeSql.Declined {
        Set<Object> folders = new HashSet<>();
        List<Object> found = new ArrayList<>();
        for (Object each : listed(scan)) {
            PartitionDirectory folder = (PartitionDirectory) each;
            List<Object> values = values(scan, folder.values());
            folders.add(values);
            if (folders.size() > MOST_FOLDERS) {
                throw new NativeSql.Declined("more than " + MOST_FOLDERS + " folders of a table");
            }
            for (Object one : Catalyst.each(folder.files().toSeq())) {
                FileStatusWithMetadata file = (FileStatusWithMetadata) one;
                if (file.getLen() > 0) { // Spark makes no task of others
                    found.add(facts(file.getPath(), 0, file.getLen(), file.getModificationTime(), file.getLen(), values));
                }
            }
        }
        return found;
    }

    static Map<String, Object> facts(Path path, long start, long length, long modified, long size, List<Object> values) {
        Map<String, Object> one = new HashMap<>();
        one.put("path", path.toString());
        one.put("start", start);
        one.put("length", length);
        one.put("modified", modified);
        one.put("size", size);
        one.put("values", values);
        return one;
    }

    private static List<?> listed(FileSourceScanExec scan) {
        Seq<Expression> none = PythonUtils.toSeq(Collections.emptyList());
        return Catalyst.each(scan.relation().location().listFiles(scan.partitionFilters(), none));
    }
}
