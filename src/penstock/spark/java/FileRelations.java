package penstock;

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

/** Reads the properties of file relations, and the files of a scan; see `plans` and `files`. */
public final class FileRelations {
    private static final ScalaValues SCALA = new ScalaValues();

    /** Returns the properties of a file relation. */
    static Map<String, Object> facts(LogicalRelation scan, HadoopFsRelation relation) {
        Map<String, Object> options = new HashMap<>();
        for (Object element : CollectionConverters.asJava(relation.options()).entrySet()) {
            Map.Entry<?, ?> option = (Map.Entry<?, ?>) element;
            options.put(((String) option.getKey()).toLowerCase(Locale.ROOT), option.getValue());
        }
        List<Object> roots = new ArrayList<>();
        for (Object root : CollectionConverters.asJava(relation.location().rootPaths())) {
            roots.add(((Path) root).getName());
        }
        Map<String, Object> facts = new HashMap<>();
        facts.put("table", "");
        facts.put("provider", "");
        if (scan.catalogTable().isDefined()) {
            Object catalogTable = scan.catalogTable().get();
            CatalogTable table = (CatalogTable) catalogTable;
            facts.put("table", table.identifier().unquotedString());
            if (table.provider().isDefined()) {
                facts.put("provider", table.provider().get());
            }
        }
        facts.put("roots", roots);
        facts.put("options", options);
        facts.put("bucketed", relation.bucketSpec().isDefined());
        facts.put("skips_corrupt", new FileSourceOptions(relation.options()).ignoreCorruptFiles());
        facts.put("format", relation.fileFormat().toString().toLowerCase(Locale.ROOT));
        return facts;
    }

    /** Returns the files of a relation, whether each is splittable, and the fraction of a row that the scan reads. */
    public Object list(LogicalRelation leaf, LogicalPlan scan, Seq<Expression> partitionFilters)
            throws JsonProcessingException {
        HadoopFsRelation relation = (HadoopFsRelation) leaf.relation();
        FileFormat format = relation.fileFormat();
        List<Object> paths = new ArrayList<>();
        List<Object> sizes = new ArrayList<>();
        List<Object> splittable = new ArrayList<>();
        Map<String, Object> byEnding = new HashMap<>();
        for (Object element : ListingComparison.files(relation.location(), partitionFilters)) {
            FileStatusWithMetadata file = (FileStatusWithMetadata) element;
            Path path = file.getPath();
            String name = path.getName();
            String ending = name.indexOf('.') < 0 ? "" : name.substring(name.indexOf('.'));
            if (!byEnding.containsKey(ending)) {
                byEnding.put(ending, format.isSplitable(relation.sparkSession(), relation.options(), path));
            }
            paths.add(path.toString());
            sizes.add(file.getLen());
            splittable.add(byEnding.get(ending));
        }
        Map<String, Object> facts = new HashMap<>();
        facts.put("paths", paths);
        facts.put("sizes", sizes);
        facts.put("splittable", splittable);
        facts.put("fraction", fraction(leaf, scan));
        return Answer.of(facts);
    }

    /** Returns the fraction of a row's bytes that a scan reads, by Spark's default sizes of types. */
    private static double fraction(LogicalPlan leaf, LogicalPlan scan) {
        Set<Object> used = new HashSet<>();
        addIds(used, Catalyst.each(scan.output()));
        for (LogicalPlan node = scan; node != leaf && node.children().size() == 1;) {
            addIds(used, Catalyst.each(node.references().toSeq()));
            Object below = node.children().head();
            node = (LogicalPlan) below;
        }
        long rowBytes = 0;
        long usedBytes = 0;
        for (Object element : Catalyst.each(leaf.output())) {
            Attribute column = (Attribute) element;
            rowBytes += column.dataType().defaultSize();
            usedBytes += used.contains(Catalyst.id(column)) ? column.dataType().defaultSize() : 0;
        }
        return rowBytes == 0 ? 1.0 : (double) usedBytes / rowBytes;
    }

    private static void addIds(Set<Object> ids, List<?> columns) {
        for (Object column : columns) {
            ids.add(Catalyst.id((Attribute) column));
        }
    }

    /** Returns a file relation that takes its split size from another session; see `files.with_split_size`. */
    @SuppressWarnings("unchecked") // Java does not see the element types of Scala's maps
    public Object withSplitSize(LogicalRelation leaf, SparkSession session)
            throws IllegalAccessException, InvocationTargetException {
        HadoopFsRelation old = (HadoopFsRelation) leaf.relation();
        String size = session.conf().get("spark.sql.files.maxPartitionBytes");
        Object options = old.options().$plus(new Tuple2<>("penstock.split", size));
        HadoopFsRelation relation = new HadoopFsRelation(old.location(), old.partitionSchema(), old.dataSchema(),
                old.bucketSpec(), old.fileFormat(), (scala.collection.immutable.Map<String, String>) options, session);
        return SCALA.copied(leaf, SCALA.seq("relation"), SCALA.seq(relation));
    }
}
