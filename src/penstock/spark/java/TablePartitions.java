package penstock;

import java.net.URI;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.core.JsonProcessingException;

import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTablePartition;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.execution.datasources.PartitioningUtils;

import scala.Option;
import scala.Tuple2;
import scala.collection.immutable.Seq;

/** Partitions of a catalog table, identified by the standard folders of their values. */
public final class TablePartitions {
    private static final String SEPARATOR = "\n"; // Spark escapes newlines in folder names

    /** Returns the standard folders of all partitions, relative to the table, and those of partitions stored elsewhere. */
    public Object folders(SessionCatalog catalog, CatalogTable table, Path folder, FileSystem files)
            throws JsonProcessingException {
        List<Object> names = new ArrayList<>();
        List<Object> elsewhere = new ArrayList<>();
        Path root = files.makeQualified(folder);
        Seq<?> partitions = catalog.listPartitions(table.identifier(), Option.empty());
        for (Object element : Catalyst.each(partitions)) {
            CatalogTablePartition partition = (CatalogTablePartition) element;
            Path expected = ExternalCatalogUtils.generatePartitionPath(
                    partition.spec(), table.partitionColumnNames(), root);
            String name = expected.toString().substring(root.toString().length()).replaceFirst("^/", "");
            Option<?> location = partition.storage().locationUri();
            names.add(name);
            if (location.isEmpty() || !files.makeQualified(new Path((URI) location.get())).equals(expected)) {
                elsewhere.add(name);
            }
        }
        Map<String, Object> facts = new HashMap<>();
        facts.put("folders", names);
        facts.put("elsewhere", elsewhere);
        return Answer.of(facts);
    }

    /** Returns the values of partitions from their folders, which are lines of a text. */
    public Seq<?> values(String folders) {
        List<Object> partitions = new ArrayList<>();
        for (String folder : folders.split(SEPARATOR)) {
            partitions.add(PartitioningUtils.parsePathFragment(folder));
        }
        return PythonUtils.toSeq(partitions);
    }

    /** Returns the values of partitions like `values`, each with an empty option: the standard location. */
    public Seq<?> valuesAndLocations(String folders) {
        List<Object> partitions = new ArrayList<>();
        for (String folder : folders.split(SEPARATOR)) {
            partitions.add(new Tuple2<Object, Object>(PartitioningUtils.parsePathFragment(folder), Option.empty()));
        }
        return PythonUtils.toSeq(partitions);
    }
}
