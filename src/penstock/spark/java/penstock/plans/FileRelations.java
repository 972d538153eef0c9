package penstock.plans;

import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;

import com.fasterxml.jackson.core.JsonProcessingException;

import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.FileSourceOptions;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;

import scala.Tuple2;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

import penstock.bridge.Answer;
import penstock.bridge.ScalaValues;

/** Reads the properties of file relations, and the files of a scan; see the Python modules `nodes` and `files`. */
public final class FileRelations {
    private static final ScalaValues SCALA = new ScalaValues();

    static Map<String, Object> facts(LogicalRelation scan, HadoopFsRelation relation) {
        Map<String, Object> options = new HashMap<>();
        for (Map.Entry<?, ?> option : CollectionConverters.asJava(relation.options()).entrySet()) {
            options.put(((String) option.getKey()).toLowerCase(Locale.ROOT), option.getValue());
        }
        List<Object> roots = new ArrayList<>();
        for (Path root : CollectionConverters.asJava(relation.location().rootPaths())) {
            roots.add(root.getName());
        }
        CatalogTable table = scan.catalogTable().isEmpty() ? null : (CatalogTable) (Object) scan.catalogTable().get();
        boolean hasProvider = table != null && table.provider().isDefined();
        return Answer.facts("table", table == null ? "" : table.identifier().unquotedString(),
                "provider", hasProvider ? (Object) table.provider().get() : "", "roots", roots, "options", options,
                "is_bucketed", relation.bucketSpec().isDefined(),
                "skips_corrupt_files", new FileSourceOptions(relation.options()).ignoreCorruptFiles(),
                "format", relation.fileFormat().toString().toLowerCase(Locale.ROOT));
    }

    /** Returns the files that match the filters, whether each is splittable, and the fraction of a row that is read. */
    public Object list(LogicalRelation leaf, LogicalPlan scan, Seq<Expression> partitionFilters)
            throws JsonProcessingException {
        HadoopFsRelation relation = (HadoopFsRelation) leaf.relation();
        FileFormat format = relation.fileFormat();
        List<Object> paths = new ArrayList<>();
        List<Object> sizes = new ArrayList<>();
        List<Object> splittable = new ArrayList<>();
        Map<String, Object> splittableByExtension = new HashMap<>();
        for (FileStatusWithMetadata file : ListingComparison.files(relation.location(), partitionFilters)) {
            Path path = file.getPath();
            String name = path.getName();
            String extension = name.indexOf('.') < 0 ? "" : name.substring(name.indexOf('.'));
            if (!splittableByExtension.containsKey(extension)) {
                splittableByExtension.put(extension, format.isSplitable(relation.sparkSession(), relation.options(), path));
            }
            paths.add(path.toString());
            sizes.add(file.getLen());
            splittable.add(splittableByExtension.get(extension));
        }
        return Answer.of(Answer.facts("paths", paths, "sizes", sizes, "splittable", splittable,
                "fraction", fraction(leaf, scan)));
    }

    /** Returns the fraction of a row's bytes that a scan reads, by Spark's default sizes of types. */
    private static double fraction(LogicalPlan leaf, LogicalPlan scan) {
        Set<Object> used = new HashSet<>(Catalyst.ids(scan.output()));
        for (LogicalPlan node = scan; node != leaf && node.children().size() == 1;) {
            used.addAll(Catalyst.ids(node.references().toSeq()));
            node = Catalyst.onlyChild(node);
        }
        long rowBytes = 0;
        long usedBytes = 0;
        for (Attribute column : Catalyst.each(leaf.output())) {
            rowBytes += column.dataType().defaultSize();
            usedBytes += used.contains(Catalyst.id(column)) ? column.dataType().defaultSize() : 0;
        }
        return rowBytes == 0 ? 1.0 : (double) usedBytes / rowBytes;
    }

    /** Returns a file relation that takes its split size from another session; see `files.with_split_size`. */
    @SuppressWarnings("unchecked") // Java does not see the element types of Scala's maps
    public Object withSplitSize(LogicalRelation leaf, SparkSession session)
            throws IllegalAccessException, InvocationTargetException {
        HadoopFsRelation original = (HadoopFsRelation) leaf.relation();
        String size = session.conf().get("spark.sql.files.maxPartitionBytes");
        Object options = original.options().$plus(new Tuple2<>("penstock.split", size));
        HadoopFsRelation relation = new HadoopFsRelation(original.location(), original.partitionSchema(), original.dataSchema(),
                original.bucketSpec(), original.fileFormat(), (scala.collection.immutable.Map<String, String>) options, session);
        return SCALA.copied(leaf, SCALA.seq("relation"), SCALA.seq(relation));
    }
}
