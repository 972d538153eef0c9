package penstock;

import java.io.IOException;
import java.lang.reflect.Constructor;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.filter2.compat.FilterCompat;
import org.apache.parquet.filter2.compat.RowGroupFilter;
import org.apache.parquet.filter2.predicate.FilterApi;
import org.apache.parquet.filter2.predicate.FilterPredicate;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.parquet.hadoop.util.HadoopInputFile;
import org.apache.parquet.schema.MessageType;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.util.RebaseDateTime;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFilters;
import org.apache.spark.sql.internal.LegacyBehaviorPolicy;
import org.apache.spark.sql.sources.Filter;

import scala.Option;
import scala.collection.immutable.Seq;

/** Asks the footers of parquet files which row groups a filter can leave out; see `parquet.row_groups_left`. */
public final class RowGroups {
    /** Of more values in a list, parquet is told the bounds. */
    private static final int IN_VALUES = 10;

    private static final List<RowGroupFilter.FilterLevel> BY_STATISTICS =
            Collections.singletonList(RowGroupFilter.FilterLevel.STATISTICS);

    private static final RebaseDateTime.RebaseSpec CORRECTED =
            new RebaseDateTime.RebaseSpec(LegacyBehaviorPolicy.CORRECTED(), Option.empty());

    /** Returns which part of the row groups of some files may hold rows that meet conditions; 1 if nothing is known. */
    public double partLeft(SparkSession session, Seq<?> paths, Seq<?> conditions)
            throws IOException, ReflectiveOperationException {
        List<Object> pushed = new ArrayList<>();
        for (Object condition : Catalyst.each(conditions)) {
            Option<?> filter = DataSourceStrategy$.MODULE$.translateFilter((Expression) condition, true);
            if (filter.isDefined()) {
                pushed.add(filter.get());
            }
        }
        Configuration hadoop = session.sessionState().newHadoopConf();
        long groups = 0;
        long left = 0;
        for (Object path : Catalyst.each(paths)) {
            ParquetFileReader reader = ParquetFileReader.open(HadoopInputFile.fromPath(new Path((String) path), hadoop));
            try {
                FilterPredicate predicate = predicate(pushed, reader.getFileMetaData().getSchema());
                if (predicate == null) {
                    return 1.0;
                }
                List<BlockMetaData> all = reader.getFooter().getBlocks();
                groups += all.size();
                left += RowGroupFilter.filterRowGroups(BY_STATISTICS, FilterCompat.get(predicate), all, reader).size();
            } finally {
                reader.close();
            }
        }
        return groups == 0 ? 1.0 : (double) left / groups;
    }

    /** Returns filters as parquet's own predicate, as far as Spark would push them; null if it would push nothing. */
    private static FilterPredicate predicate(List<?> pushed, MessageType schema) throws ReflectiveOperationException {
        Constructor<?> maker = ParquetFilters.class.getConstructors()[0];
        List<Object> arguments = new ArrayList<>();
        arguments.addAll(Arrays.asList(new Object[] {schema, true, true, true, true, IN_VALUES, false, CORRECTED}));
        while (arguments.size() < maker.getParameterCount()) { // one more since Spark 4.3
            arguments.add(Option.empty());
        }
        ParquetFilters filters = (ParquetFilters) maker.newInstance(arguments.toArray());
        FilterPredicate all = null;
        for (Object filter : pushed) {
            Option<?> made = filters.createFilter((Filter) filter);
            if (made.isDefined()) {
                FilterPredicate found = (FilterPredicate) made.get();
                all = all == null ? found : FilterApi.and(all, found);
            }
        }
        return all;
    }
}
