package penstock.io;

import java.net.URI;
import java.util.ArrayList;
import java.util.List;

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

import penstock.bridge.Answer;
import penstock.plans.Catalyst;

/** Partitions of a catalog table, identified by the standard folders of their values. */
public final class TablePartitions {
    /** Returns the standard folders, relative to the table, of all partitions and of those stored elsewhere. */
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
        return Answer.of(Answer.facts("folders", names, "elsewhere", elsewhere));
    }

    /** Returns the partition values of folders (lines); if `withLocation`, each as a pair with an empty location. */
    public Seq<?> values(String folders, boolean withLocation) {
        List<Object> partitions = new ArrayList<>();
        for (String folder : folders.split("\n")) { // Spark escapes newlines in folder names
            Object values = PartitioningUtils.parsePathFragment(folder);
            partitions.add(withLocation ? new Tuple2<Object, Object>(values, Option.empty()) : values);
        }
        return PythonUtils.toSeq(partitions);
    }
}
