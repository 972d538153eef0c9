package penstock;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;

import scala.collection.immutable.Seq;

/** Compares the files that relations have listed: Spark holds tables equal whatever they have listed. */
public final class ListingComparison {
    /** Whether two plans with the same result also read the same. */
    public boolean readsSame(LogicalPlan left, LogicalPlan right) {
        Seq<?> ours = left.collectLeaves();
        Seq<?> theirs = right.collectLeaves();
        boolean same = ours.size() == theirs.size();
        for (int i = 0; same && i < ours.size(); i++) {
            same = readsSame(ours.apply(i), theirs.apply(i));
        }
        return same;
    }

    /** Whether two relations of a plan are equal to Spark though they have listed other files. */
    public boolean mixesListings(LogicalPlan plan) {
        Seq<?> leaves = plan.collectLeaves();
        for (int i = 0; i < leaves.size(); i++) {
            FileIndex one = listing(leaves.apply(i));
            for (int j = 0; one != null && j < i; j++) {
                FileIndex other = listing(leaves.apply(j));
                if (other != null && one.equals(other) && !readsSame(leaves.apply(i), leaves.apply(j))) {
                    return true;
                }
            }
        }
        return false;
    }

    /** Returns the files of a listing that partition filters leave. */
    static List<?> files(FileIndex listing, Seq<Expression> partitionFilters) {
        List<Object> found = new ArrayList<>();
        Seq<Expression> none = PythonUtils.toSeq(Collections.emptyList());
        for (Object folder : Catalyst.each(listing.listFiles(partitionFilters, none))) {
            found.addAll(Catalyst.each(((PartitionDirectory) folder).files().toSeq()));
        }
        return found;
    }

    /** Returns the path, size and time of each file that the leaves of a plan and of its subqueries have listed. */
    static Set<Object> versions(QueryPlan<?> plan) {
        Set<Object> found = new HashSet<>();
        for (Object leaf : Catalyst.each(plan.collectLeaves())) {
            FileIndex listing = listing(leaf);
            if (listing != null) {
                found.addAll(versions(listing));
            }
        }
        for (Object subquery : Catalyst.each(plan.subqueriesAll())) {
            found.addAll(versions((QueryPlan<?>) subquery));
        }
        return found;
    }

    private static FileIndex listing(Object leaf) {
        if (leaf instanceof FileSourceScanExec) {
            return ((FileSourceScanExec) leaf).relation().location();
        }
        if (leaf instanceof LogicalRelation && ((LogicalRelation) leaf).relation() instanceof HadoopFsRelation) {
            return ((HadoopFsRelation) ((LogicalRelation) leaf).relation()).location();
        }
        return null;
    }

    private static boolean readsSame(Object left, Object right) {
        if (left instanceof DataSourceV2Relation && right instanceof DataSourceV2Relation) {
            return ((DataSourceV2Relation) left).table() == ((DataSourceV2Relation) right).table();
        }
        if (left instanceof DataSourceV2ScanRelation && right instanceof DataSourceV2ScanRelation) {
            return readsSame((Object) ((DataSourceV2ScanRelation) left).relation(),
                    (Object) ((DataSourceV2ScanRelation) right).relation());
        }
        FileIndex ours = listing(left);
        FileIndex theirs = listing(right);
        return ours == theirs || ours != null && theirs != null && versions(ours).equals(versions(theirs));
    }

    private static Set<Object> versions(FileIndex listing) {
        Set<Object> found = new HashSet<>();
        Seq<Expression> all = PythonUtils.toSeq(Collections.emptyList());
        for (Object each : files(listing, all)) {
            FileStatusWithMetadata file = (FileStatusWithMetadata) each;
            found.add(file.getPath() + "|" + file.getLen() + "|" + file.getModificationTime());
        }
        return found;
    }
}
