package penstock.io;

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

import penstock.plans.Catalyst;

/** Computes which fraction of the row groups of Parquet files a filter cannot exclude by the statistics in the footers. */
public final class RowGroups {
    /** Longer IN lists are pushed down as their bounds. */
    private static final int MAX_IN_VALUES = 10;

    private static final List<RowGroupFilter.FilterLevel> BY_STATISTICS =
            Collections.singletonList(RowGroupFilter.FilterLevel.STATISTICS);

    private static final RebaseDateTime.RebaseSpec CORRECTED =
            new RebaseDateTime.RebaseSpec(LegacyBehaviorPolicy.CORRECTED(), Option.empty());

    /** Returns the fraction of row groups that may contain rows matching the conditions; 1 if nothing is pushed down. */
    public double matchFraction(SparkSession session, Seq<?> paths, Seq<?> conditions)
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
        long matching = 0;
        for (Object path : Catalyst.each(paths)) {
            ParquetFileReader reader = ParquetFileReader.open(HadoopInputFile.fromPath(new Path((String) path), hadoop));
            try {
                FilterPredicate predicate = predicate(pushed, reader.getFileMetaData().getSchema());
                if (predicate == null) {
                    return 1.0;
                }
                List<BlockMetaData> blocks = reader.getFooter().getBlocks();
                groups += blocks.size();
                matching += RowGroupFilter.filterRowGroups(BY_STATISTICS, FilterCompat.get(predicate), blocks, reader).size();
            } finally {
                reader.close();
            }
        }
        return groups == 0 ? 1.0 : (double) matching / groups;
    }

    /** Returns the predicate that Spark would push down to Parquet; null if it would push down nothing. */
    private static FilterPredicate predicate(List<?> pushed, MessageType schema) throws ReflectiveOperationException {
        Constructor<?> constructor = ParquetFilters.class.getConstructors()[0];
        List<Object> arguments = new ArrayList<>();
        // true: dates, timestamps, decimals and string predicates are pushed down; false: names are not case-sensitive
        arguments.addAll(Arrays.asList(new Object[] {schema, true, true, true, true, MAX_IN_VALUES, false, CORRECTED}));
        while (arguments.size() < constructor.getParameterCount()) { // Spark 4.3 has an additional parameter
            arguments.add(Option.empty());
        }
        ParquetFilters filters = (ParquetFilters) constructor.newInstance(arguments.toArray());
        FilterPredicate conjunction = null;
        for (Object filter : pushed) {
            Option<?> converted = filters.createFilter((Filter) filter);
            if (converted.isDefined()) {
                FilterPredicate predicate = (FilterPredicate) converted.get();
                conjunction = conjunction == null ? predicate : FilterApi.and(conjunction, predicate);
            }
        }
        return conjunction;
    }
}
