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

/** Partitions of a table of the catalogue, by the folders in which their values say that they lie. */
public final class TablePartitions {
    private static final String BETWEEN = "\n"; // Spark escapes it in the names of folders

    /** Returns the folders of all that the catalogue knows, relative to the table's, and which of them lie elsewhere. */
    public Object known(SessionCatalog catalog, CatalogTable table, Path folder, FileSystem files)
            throws JsonProcessingException {
        List<Object> names = new ArrayList<>();
        List<Object> elsewhere = new ArrayList<>();
        Path root = files.makeQualified(folder);
        Seq<?> partitions = catalog.listPartitions(table.identifier(), Option.empty());
        for (Object each : Catalyst.each(partitions)) {
            CatalogTablePartition partition = (CatalogTablePartition) each;
            Path expected = ExternalCatalogUtils.generatePartitionPath(
                    partition.spec(), table.partitionColumnNames(), root);
            String name = expected.toString().substring(root.toString().length()).replaceFirst("^/", "");
            Option<?> place = partition.storage().locationUri();
            names.add(name);
            if (place.isEmpty() || !files.makeQualified(new Path((URI) place.get())).equals(expected)) {
                elsewhere.add(name);
            }
        }
        Map<String, Object> facts = new HashMap<>();
        facts.put("folders", names);
        facts.put("elsewhere", elsewhere);
        return Answer.of(facts);
    }

    /** Returns the values of partitions, whose folders are lines of a text. */
    public Seq<?> values(String folders) {
        List<Object> found = new ArrayList<>();
        for (String folder : folders.split(BETWEEN)) {
            found.add(PartitioningUtils.parsePathFragment(folder));
        }
        return PythonUtils.toSeq(found);
    }

    /** Returns the values of partitions as `values`, each with no place that is not its own. */
    public Seq<?> valuesAndPlaces(String folders) {
        List<Object> found = new ArrayList<>();
        for (String folder : folders.split(BETWEEN)) {
            found.add(new Tuple2<Object, Object>(PartitioningUtils.parsePathFragment(folder), Option.empty()));
        }
        return PythonUtils.toSeq(found);
    }
}
