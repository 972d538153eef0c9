package penstock.plans;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;

import scala.collection.immutable.Seq;

/** Compares the file listings of relations: Spark considers tables equal even if their listings differ. */
public final class ListingComparison {
    /** Whether two plans with the same result also read the same files. */
    public boolean readsSameFiles(LogicalPlan left, LogicalPlan right) {
        Seq<?> leftLeaves = left.collectLeaves();
        Seq<?> rightLeaves = right.collectLeaves();
        boolean isSame = leftLeaves.size() == rightLeaves.size();
        for (int i = 0; isSame && i < leftLeaves.size(); i++) {
            isSame = readsSameFiles(leftLeaves.apply(i), rightLeaves.apply(i));
        }
        return isSame;
    }

    /** Whether Spark considers two relations of a plan equal although their listings differ. */
    public boolean mixesListings(LogicalPlan plan) {
        Seq<?> leaves = plan.collectLeaves();
        for (int i = 0; i < leaves.size(); i++) {
            FileIndex listing = listing(leaves.apply(i));
            for (int j = 0; listing != null && j < i; j++) {
                FileIndex otherListing = listing(leaves.apply(j));
                if (otherListing != null && listing.equals(otherListing) && !readsSameFiles(leaves.apply(i), leaves.apply(j))) {
                    return true;
                }
            }
        }
        return false;
    }

    /** Returns the files of a listing that match partition filters. */
    static List<FileStatusWithMetadata> files(FileIndex listing, Seq<Expression> partitionFilters) {
        List<FileStatusWithMetadata> files = new ArrayList<>();
        for (PartitionDirectory folder : Catalyst.each(listing.listFiles(partitionFilters, Catalyst.<Expression>emptySeq()))) {
            files.addAll(Catalyst.each(folder.files().toSeq()));
        }
        return files;
    }

    /** Returns the path, size and modification time of each listed file of a plan and its subqueries. */
    public static Set<Object> versions(QueryPlan<?> plan) {
        Set<Object> versions = new HashSet<>();
        for (Object leaf : Catalyst.each(plan.collectLeaves())) {
            FileIndex listing = listing(leaf);
            if (listing != null) {
                versions.addAll(versions(listing));
            }
        }
        for (QueryPlan<?> subquery : Catalyst.each(plan.subqueriesAll())) {
            versions.addAll(versions(subquery));
        }
        return versions;
    }

    private static FileIndex listing(Object leaf) {
        if (leaf instanceof FileSourceScanExec) {
            return ((FileSourceScanExec) leaf).relation().location();
        }
        return Catalyst.fileRelation(leaf) == null ? null : Catalyst.fileRelation(leaf).location();
    }

    private static boolean readsSameFiles(Object left, Object right) {
        if (left instanceof DataSourceV2Relation && right instanceof DataSourceV2Relation) {
            return ((DataSourceV2Relation) left).table() == ((DataSourceV2Relation) right).table();
        }
        if (left instanceof DataSourceV2ScanRelation && right instanceof DataSourceV2ScanRelation) {
            return readsSameFiles((Object) ((DataSourceV2ScanRelation) left).relation(),
                    (Object) ((DataSourceV2ScanRelation) right).relation());
        }
        FileIndex leftListing = listing(left);
        FileIndex rightListing = listing(right);
        return leftListing == rightListing || leftListing != null && rightListing != null && versions(leftListing).equals(versions(rightListing));
    }

    private static Set<Object> versions(FileIndex listing) {
        Set<Object> versions = new HashSet<>();
        for (FileStatusWithMetadata file : files(listing, Catalyst.<Expression>emptySeq())) {
            versions.add(file.getPath() + "|" + file.getLen() + "|" + file.getModificationTime());
        }
        return versions;
    }
}
