package penstock;

import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.Set;

import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.filter2.compat.FilterCompat;
import org.apache.parquet.filter2.compat.RowGroupFilter;
import org.apache.parquet.filter2.predicate.FilterApi;
import org.apache.parquet.filter2.predicate.FilterPredicate;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.metadata.ParquetMetadata;
import org.apache.parquet.hadoop.util.HadoopInputFile;
import org.apache.parquet.schema.MessageType;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.HiveTableRelation;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BinaryArithmetic;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.Like;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.OrderUtils;
import org.apache.spark.sql.catalyst.expressions.Nondeterministic;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.Max;
import org.apache.spark.sql.catalyst.expressions.aggregate.Min;
import org.apache.spark.sql.catalyst.expressions.aggregate.TypedImperativeAggregate;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.CollectMetrics;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.HintInfo;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.JoinStrategyHint;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.RebalancePartitions;
import org.apache.spark.sql.catalyst.plans.logical.Sample;
import org.apache.spark.sql.catalyst.util.RebaseDateTime;
import org.apache.spark.sql.catalyst.util.TypeUtils;
import org.apache.spark.sql.catalyst.plans.physical.CoalescedHashPartitioning;
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.catalyst.plans.physical.PartitioningCollection;
import org.apache.spark.sql.catalyst.util.UnsafeRowUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFilters;
import org.apache.spark.sql.execution.joins.HashedRelation;
import org.apache.spark.sql.execution.joins.LongHashedRelation;
import org.apache.spark.sql.execution.joins.ValueRowWithKeyIndex;
import org.apache.spark.sql.internal.LegacyBehaviorPolicy;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.util.AccumulatorV2;

import scala.Enumeration;
import scala.Option;
import scala.Product;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/**
 * The far end of the bridge from Python: what would take many calls, done in one. Facts are given as JSON text.
 *
 * Compiled inside Spark by Janino, which knows neither lambdas nor inferred type arguments; hence the plain style.
 */
public final class FarEnd {
    /** Of longer answers a part would wait for the other end to acknowledge the first one, which takes 40 ms. */
    private static final int PIECE = 4000;

    /** Of more values in a list, parquet is told the bounds. */
    private static final int IN_VALUES = 10;

    private static final RebaseDateTime.RebaseSpec CORRECTED =
            new RebaseDateTime.RebaseSpec(LegacyBehaviorPolicy.CORRECTED(), Option.empty());

    private final ObjectMapper json = new ObjectMapper();

    // -- the thread of a vertex ----------------------------------------------------------------------------------

    /**
     * Returns the local properties of a vertex's thread: those of the user's thread, and the settings of the session
     * that plans the vertex, which tasks read from there (as SQLExecution.withSQLConfPropagated hands them on).
     */
    public Properties threadProperties(Properties users, SparkSession session) {
        Properties found = new Properties();
        for (java.util.Iterator each = users.stringPropertyNames().iterator(); each.hasNext();) {
            String name = (String) each.next();
            if (!name.startsWith("spark.sql.execution.")) { // whose execution this is, not how it runs
                found.setProperty(name, users.getProperty(name));
            }
        }
        Iterator settings = session.sessionState().conf().getAllConfs().iterator();
        while (settings.hasNext()) {
            Tuple2 one = (Tuple2) settings.next();
            if (((String) one._1()).startsWith("spark")) {
                found.setProperty((String) one._1(), (String) one._2());
            }
        }
        return found;
    }

    // -- how rows lie -----------------------------------------------------------------------------------------------

    /**
     * Returns how a plan's rows are hashed, as Spark says (SparkPlan.outputPartitioning), in the columns of a leaf
     * that stands for the plan; null where Spark does not say that they are, or a key is not among its columns.
     */
    public Partitioning hashed(SparkPlan plan, Seq output) {
        List found = new ArrayList();
        if (plan.output().size() == output.size()) {
            addHashed(plan.outputPartitioning(), plan.output(), output, found);
        }
        if (found.size() > 1) {
            return new PartitioningCollection(PythonUtils.toSeq(found));
        }
        return found.isEmpty() ? null : (Partitioning) found.get(0);
    }

    private static void addHashed(Partitioning one, Seq from, Seq to, List found) {
        if (one instanceof PartitioningCollection) {
            Iterator parts = ((PartitioningCollection) one).partitionings().iterator();
            while (parts.hasNext()) {
                addHashed((Partitioning) parts.next(), from, to, found);
            }
        } else if (one instanceof HashPartitioning || one instanceof CoalescedHashPartitioning) {
            Expression moved = moved((Expression) one, from, to);
            if (moved != null) {
                found.add(moved);
            }
        }
    }

    private static Expression moved(Expression expression, Seq from, Seq to) {
        if (expression instanceof Attribute) {
            for (int i = 0; i < from.size(); i++) {
                if (((Attribute) from.apply(i)).exprId().equals(((Attribute) expression).exprId())) {
                    return (Expression) to.apply(i);
                }
            }
            return null;
        }
        List inner = new ArrayList();
        Iterator children = expression.children().iterator();
        while (children.hasNext()) {
            Expression child = moved((Expression) children.next(), from, to);
            if (child == null) {
                return null;
            }
            inner.add(child);
        }
        return inner.isEmpty() ? expression : (Expression) expression.withNewChildren(PythonUtils.toSeq(inner));
    }

    // -- words -------------------------------------------------------------------------------------------------------

    public Seq seq() {
        return PythonUtils.toSeq(new ArrayList());
    }

    public Seq seq(Object a) {
        return PythonUtils.toSeq(Arrays.asList(new Object[] {a}));
    }

    public Seq seq(Object a, Object b) {
        return PythonUtils.toSeq(Arrays.asList(new Object[] {a, b}));
    }

    public Seq seq(Object a, Object b, Object c) {
        return PythonUtils.toSeq(Arrays.asList(new Object[] {a, b, c}));
    }

    public Seq seq(Object a, Object b, Object c, Object d) {
        return PythonUtils.toSeq(Arrays.asList(new Object[] {a, b, c, d}));
    }

    private static List pieces(String text) {
        List found = new ArrayList();
        for (int from = 0; from < text.length();) {
            int to = Math.min(from + PIECE, text.length());
            if (Character.isHighSurrogate(text.charAt(to - 1))) { // never cut one character in two
                to--;
            }
            found.add(text.substring(from, to));
            from = to;
        }
        return found;
    }

    /** Returns the options of the context and of a session that begin with a word; those of the session win. */
    public List options(SparkSession session, String prefix) throws Exception {
        Map found = new LinkedHashMap();
        Tuple2[] context = session.sparkContext().getConf().getAll();
        for (int i = 0; i < context.length; i++) {
            found.put(context[i]._1(), context[i]._2());
        }
        for (Iterator each = session.conf().getAll().iterator(); each.hasNext();) {
            Tuple2 one = (Tuple2) each.next();
            found.put(one._1(), one._2());
        }
        for (java.util.Iterator names = found.keySet().iterator(); names.hasNext();) {
            if (!((String) names.next()).startsWith(prefix)) {
                names.remove();
            }
        }
        return pieces(json.writeValueAsString(found));
    }

    /** Sets options of a session, given as a JSON object of texts. */
    public void set(SparkSession session, String settings) throws Exception {
        Map found = (Map) json.readValue(settings, LinkedHashMap.class);
        for (java.util.Iterator each = found.entrySet().iterator(); each.hasNext();) {
            Map.Entry one = (Map.Entry) each.next();
            session.conf().set((String) one.getKey(), (String) one.getValue());
        }
    }

    /** Returns a copy of a case class object with some fields new; arguments of a second list follow the values. */
    public Object copied(Product old, Seq names, Seq values) throws Exception {
        Object[] arguments = new Object[old.productArity() + values.size() - names.size()];
        for (int i = 0; i < old.productArity(); i++) {
            int place = names.indexOf(old.productElementName(i));
            arguments[i] = place < 0 ? old.productElement(i) : values.apply(place);
        }
        for (int i = names.size(); i < values.size(); i++) {
            arguments[old.productArity() + i - names.size()] = values.apply(i);
        }
        Method[] methods = old.getClass().getMethods();
        for (int i = 0; i < methods.length; i++) {
            if (methods[i].getName().equals("copy") && methods[i].getParameterCount() == arguments.length) {
                return methods[i].invoke(old, arguments);
            }
        }
        throw new IllegalArgumentException("no way to copy " + old.getClass());
    }

    // -- logical plans -----------------------------------------------------------------------------------------------

    /** Returns all nodes of a plan, each before its inputs. */
    public List nodes(LogicalPlan plan) {
        List found = new ArrayList();
        visit(plan, found);
        return found;
    }

    private static void visit(LogicalPlan plan, List found) {
        found.add(plan);
        for (Iterator each = inputs(plan).iterator(); each.hasNext();) {
            visit((LogicalPlan) each.next(), found);
        }
    }

    /** Returns the inputs of a plan; a recursion is a leaf, as its inputs mean nothing without it. */
    private static Seq inputs(LogicalPlan plan) {
        return name(plan).equals("UnionLoop") ? PythonUtils.toSeq(new ArrayList()) : plan.children();
    }

    /** Returns facts of nodes, in pieces. */
    public List facts(List nodes) throws Exception {
        List facts = new ArrayList();
        for (int i = 0; i < nodes.size(); i++) {
            facts.add(factsOf((LogicalPlan) nodes.get(i)));
        }
        return pieces(json.writeValueAsString(facts));
    }

    /** Returns an expression as SQL, in pieces. */
    public List sql(Expression expression) {
        return pieces(expression.sql());
    }

    /** Whether metrics are observed on a plan or on one of its subqueries. */
    public boolean observes(LogicalPlan plan) {
        if (plan instanceof CollectMetrics) {
            return true;
        }
        for (Iterator each = plan.children().iterator(); each.hasNext();) {
            if (observes((LogicalPlan) each.next())) {
                return true;
            }
        }
        for (Iterator each = plan.subqueries().iterator(); each.hasNext();) {
            if (observes((LogicalPlan) each.next())) {
                return true;
            }
        }
        return false;
    }

    /** Returns, in pieces, the advisory sizes of a plan's exchanges, and the keys of its readers' options. */
    public List said(LogicalPlan plan) throws Exception {
        List sizes = new ArrayList();
        Set keys = new HashSet();
        say(plan, sizes, keys);
        return pieces(json.writeValueAsString(Arrays.asList(new Object[] {sizes, keys})));
    }

    private static void say(LogicalPlan plan, List sizes, Set keys) {
        Option size = Option.empty();
        if (plan instanceof RebalancePartitions) {
            size = ((RebalancePartitions) plan).optAdvisoryPartitionSize();
        } else if (plan instanceof HiveTableRelation) {
            addKeys(keys, ((HiveTableRelation) plan).tableMeta().properties());
        } else if (plan instanceof LogicalRelation && ((LogicalRelation) plan).relation() instanceof HadoopFsRelation) {
            addKeys(keys, ((HadoopFsRelation) ((LogicalRelation) plan).relation()).options());
        }
        if (size.isDefined()) {
            sizes.add(size.get());
        }
        for (Iterator each = plan.children().iterator(); each.hasNext();) {
            say((LogicalPlan) each.next(), sizes, keys);
        }
        for (Iterator each = plan.subqueries().iterator(); each.hasNext();) {
            say((LogicalPlan) each.next(), sizes, keys);
        }
    }

    private static void addKeys(Set keys, scala.collection.Map options) {
        for (Iterator each = options.keysIterator(); each.hasNext();) {
            keys.add(((String) each.next()).toLowerCase(Locale.ROOT));
        }
    }

    private Map factsOf(LogicalPlan plan) {
        Map facts = new HashMap();
        List ids = new ArrayList();
        List keys = new ArrayList();
        for (Iterator each = plan.output().iterator(); each.hasNext();) {
            Attribute one = (Attribute) each.next();
            ids.add(id(one));
            keys.add(key(one));
        }
        List references = new ArrayList();
        for (Iterator each = plan.references().iterator(); each.hasNext();) {
            references.add(id((Attribute) each.next()));
        }
        facts.put("name", name(plan));
        facts.put("children", Integer.valueOf(inputs(plan).size()));
        facts.put("ids", ids);
        facts.put("keys", keys);
        facts.put("references", references);
        facts.put("description", plan.simpleString(25));
        facts.put("deterministic", Boolean.valueOf(plan.deterministic()));
        facts.put("cannot_fail", Boolean.valueOf(cannotFail(plan.expressions())));
        Set functions = new HashSet();
        Set unstable = new HashSet();
        for (Iterator each = plan.expressions().iterator(); each.hasNext();) {
            addFunctions((Expression) each.next(), functions, unstable);
        }
        if (plan instanceof Sample) {
            unstable.add("Sample");
        }
        for (Iterator each = plan.subqueries().iterator(); each.hasNext();) {
            if (isUnstable((LogicalPlan) each.next())) {
                unstable.add("Subquery");
            }
        }
        facts.put("functions", functions);
        facts.put("unstable", unstable);
        if (plan instanceof LogicalRelation && ((LogicalRelation) plan).relation() instanceof HadoopFsRelation) {
            HadoopFsRelation relation = (HadoopFsRelation) ((LogicalRelation) plan).relation();
            facts.put("files", fileFacts((LogicalRelation) plan, relation));
            facts.put("partition_columns", Arrays.asList(relation.partitionSchema().fieldNames()));
        }
        if (plan instanceof HiveTableRelation) {
            List columns = new ArrayList();
            for (Iterator each = ((HiveTableRelation) plan).partitionCols().iterator(); each.hasNext();) {
                columns.add(((Attribute) each.next()).name());
            }
            facts.put("partition_columns", columns);
        }
        if (plan instanceof Filter) {
            facts.put("only_not_null", Boolean.valueOf(onlyNotNull(((Filter) plan).condition())));
        }
        if (plan instanceof Project) {
            putNames(facts, ((Project) plan).projectList());
        }
        if (plan instanceof Aggregate) {
            putNames(facts, ((Aggregate) plan).aggregateExpressions());
        }
        return facts;
    }

    /** Adds the names of aggregate functions, and of all else that is not deterministic by itself. */
    private static void addFunctions(Expression expression, Set functions, Set unstable) {
        if (expression instanceof AggregateExpression) {
            functions.add(name(((AggregateExpression) expression).aggregateFunction()));
        } else if (!expression.deterministic() && (expression instanceof Nondeterministic || !below(expression))) {
            unstable.add(name(expression));
        }
        Expression parent = expression;
        if (expression instanceof AggregateExpression) { // the function itself is named already
            AggregateExpression aggregate = (AggregateExpression) expression;
            parent = aggregate.aggregateFunction();
            if (aggregate.filter().isDefined()) {
                addFunctions((Expression) aggregate.filter().get(), functions, unstable);
            }
        }
        for (Iterator each = parent.children().iterator(); each.hasNext();) {
            addFunctions((Expression) each.next(), functions, unstable);
        }
    }

    private static boolean below(Expression expression) {
        for (Iterator each = expression.children().iterator(); each.hasNext();) {
            if (!((Expression) each.next()).deterministic()) {
                return true;
            }
        }
        return false;
    }

    private static boolean isUnstable(LogicalPlan plan) {
        if (plan instanceof Sample) {
            return true;
        }
        Set unstable = new HashSet();
        for (Iterator each = plan.expressions().iterator(); each.hasNext();) {
            addFunctions((Expression) each.next(), new HashSet(), unstable);
        }
        boolean found = !unstable.isEmpty();
        for (Iterator each = plan.children().iterator(); !found && each.hasNext();) {
            found = isUnstable((LogicalPlan) each.next());
        }
        for (Iterator each = plan.subqueries().iterator(); !found && each.hasNext();) {
            found = isUnstable((LogicalPlan) each.next());
        }
        return found;
    }

    private void putNames(Map facts, Seq named) {
        Map moved = new HashMap();
        Map renames = new HashMap();
        for (Iterator each = named.iterator(); each.hasNext();) {
            Object one = each.next();
            if (one instanceof Alias) {
                Alias alias = (Alias) one;
                Expression child = (Expression) alias.children().head();
                if (child instanceof AttributeReference) {
                    moved.put(String.valueOf(alias.exprId().id()), id((Attribute) child));
                }
                if (child.deterministic()) {
                    renames.put(key(child), key(alias.toAttribute()));
                }
            }
        }
        facts.put("moved", moved);
        facts.put("renames", renames);
    }

    private static boolean onlyNotNull(Expression condition) {
        if (condition instanceof And) {
            return onlyNotNull(((And) condition).left()) && onlyNotNull(((And) condition).right());
        }
        return condition instanceof IsNotNull;
    }

    private static String id(Attribute attribute) {
        return String.valueOf(attribute.exprId().id());
    }

    private static String key(Expression expression) {
        return expression.canonicalized().toString();
    }

    private static String name(Object thing) {
        return thing instanceof Product ? ((Product) thing).productPrefix() : thing.getClass().getSimpleName();
    }

    /** Returns facts of an equi-join, its left keys and its right keys; nothing if it is no equi-join. */
    public List join(Join join) throws Exception {
        Option found = ExtractEquiJoinKeys.unapply(join);
        List answer = new ArrayList();
        if (found.isEmpty()) {
            return answer;
        }
        Product parts = (Product) found.get(); // their number depends on the release
        Map facts = new HashMap();
        facts.put("join_type", join.joinType().toString());
        facts.put("left_hint", hint(join.hint().leftHint()));
        facts.put("right_hint", hint(join.hint().rightHint()));
        List keys = new ArrayList();
        boolean hashable = true;
        answer.add("");
        for (int side = 1; side <= 2; side++) {
            for (Iterator each = ((Seq) parts.productElement(side)).iterator(); each.hasNext();) {
                Expression key = (Expression) each.next();
                DataType type = key.dataType();
                hashable = hashable && UnsafeRowUtils.isBinaryStable(type) && OrderUtils.isOrderable(type);
                keys.add(keyFacts(key));
                answer.add(key);
            }
        }
        facts.put("keys", keys);
        facts.put("is_hashable", Boolean.valueOf(hashable));
        facts.put("cannot_fail", Boolean.valueOf(cannotFail(join.expressions())));
        answer.set(0, json.writeValueAsString(facts));
        return answer;
    }

    private Map keyFacts(Expression key) {
        List columns = new ArrayList();
        for (Iterator each = key.references().iterator(); each.hasNext();) {
            columns.add(id((Attribute) each.next()));
        }
        Map facts = new HashMap();
        facts.put("text", key(key));
        facts.put("columns", columns);
        facts.put("is_column", Boolean.valueOf(key instanceof AttributeReference));
        facts.put("is_deterministic", Boolean.valueOf(key.deterministic()));
        facts.put("cannot_fail", Boolean.valueOf(cannotFail(key)));
        facts.put("type", key.dataType().catalogString());
        return facts;
    }

    private static String hint(Option side) {
        Option strategy = side.isDefined() ? ((HintInfo) side.get()).strategy() : Option.empty();
        return strategy.isDefined() ? ((JoinStrategyHint) strategy.get()).displayName() : "";
    }

    // -- what cannot fail --------------------------------------------------------------------------------------------

    /** Expressions that give a value, or null, of any values. */
    private static final Set SAFE = words("AttributeReference Literal Alias And Or Not EqualTo EqualNullSafe LessThan "
            + "LessThanOrEqual GreaterThan GreaterThanOrEqual In InSet IsNull IsNotNull IsNaN If CaseWhen Coalesce "
            + "NaNvl Greatest Least KnownNotNull KnownNullable KnownFloatingPointNormalized NormalizeNaNAndZero "
            + "AtLeastNNonNulls StartsWith EndsWith Contains Substring Upper Lower StringTrim StringTrimLeft "
            + "StringTrimRight Length Concat ConcatWs Year Quarter Month DayOfMonth DayOfWeek WeekDay DayOfYear "
            + "DateAdd DateSub DateDiff Murmur3Hash XxHash64 CollationKey GetStructField CreateNamedStruct SortOrder "
            + "DynamicPruningSubquery DynamicPruningExpression BloomFilterMightContain "
            + "AggregateExpression Count Min Max First Last MinBy MaxBy BitAndAgg BitOrAgg BitXorAgg StddevSamp "
            + "StddevPop VarianceSamp VariancePop Skewness Kurtosis Corr CovPopulation CovSample CollectList "
            + "CollectSet HyperLogLogPlusPlus WindowExpression WindowSpecDefinition RowNumber Rank DenseRank "
            + "PercentRank CumeDist Lead Lag UnboundedPreceding UnboundedFollowing CurrentRow Explode PosExplode "
            + "Inline Stack ReplicateRows");

    private static final List WHOLE = Arrays.asList("tinyint smallint int bigint".split(" "));
    private static final int[] DIGITS = {3, 5, 10, 20};
    private static final Set FLOATING = words("float double");
    private static final Set CONVERTIBLE = words("tinyint smallint int bigint float double boolean string date");

    /** A sum of decimals has so many digits more: more than ten thousand million rows are needed to fill them. */
    private static final int DIGITS_OF_SUM = 10;

    private static Set words(String text) {
        return new HashSet(Arrays.asList(text.split(" ")));
    }

    /** Whether none of some expressions can raise an error, whatever the rows hold; no for all that is not known. */
    public boolean cannotFail(Seq expressions) {
        for (Iterator each = expressions.iterator(); each.hasNext();) {
            if (!cannotFail((Expression) each.next())) {
                return false;
            }
        }
        return true;
    }

    private boolean cannotFail(Expression one) {
        String name = name(one);
        boolean safe = SAFE.contains(name);
        if (one instanceof Cast) {
            safe = castCannotFail((Cast) one);
        } else if (one instanceof BinaryArithmetic) {
            safe = arithmeticCannotFail((BinaryArithmetic) one, name);
        } else if (one instanceof Like) {
            Like like = (Like) one;
            safe = like.right() instanceof Literal && String.valueOf(like.right()).indexOf(like.escapeChar()) < 0;
        } else if (name.equals("Sum") || name.equals("Average")) {
            safe = cannotOverflow(one);
        } else if (name.equals("UnaryMinus") || name.equals("Abs")) {
            safe = FLOATING.contains(type(one)) || one.dataType() instanceof DecimalType;
        } else if (name.equals("SpecifiedWindowFrame")) { // bounds of ranges are sums
            safe = one.sql().startsWith("ROWS") || !(one.children().head() instanceof Literal)
                    && !(one.children().last() instanceof Literal);
        } else if (one instanceof StaticInvoke) { // of CHAR(n)
            safe = ((StaticInvoke) one).functionName().equals("readSidePadding");
        }
        return safe && cannotFail((Seq) one.children());
    }

    private static boolean castCannotFail(Cast cast) {
        String from = type(cast.child());
        String to = type(cast);
        DataType given = cast.child().dataType();
        if (from.equals(to) || from.equals("void")) {
            return true;
        }
        if (cast.dataType() instanceof DecimalType) {
            int room = ((DecimalType) cast.dataType()).precision() - ((DecimalType) cast.dataType()).scale();
            if (given instanceof DecimalType) {
                DecimalType old = (DecimalType) given;
                boolean keeps = ((DecimalType) cast.dataType()).scale() >= old.scale();
                return keeps && room >= old.precision() - old.scale();
            }
            return WHOLE.contains(from) && room >= DIGITS[WHOLE.indexOf(from)];
        }
        if (given instanceof DecimalType) {
            return FLOATING.contains(to) || to.equals("string");
        }
        if (!CONVERTIBLE.contains(from) || !CONVERTIBLE.contains(to)) {
            return false;
        }
        boolean widens = WHOLE.contains(from) && WHOLE.indexOf(to) > WHOLE.indexOf(from);
        boolean floats = FLOATING.contains(to) && (WHOLE.contains(from) || FLOATING.contains(from));
        return widens || floats || to.equals("string") || !cast.ansiEnabled();
    }

    private static boolean arithmeticCannotFail(BinaryArithmetic one, String name) {
        String type = type(one);
        DataType result = ((Expression) one).dataType();
        DataType left = ((Expression) one.children().head()).dataType();
        Expression right = (Expression) one.children().last();
        boolean decimal = result instanceof DecimalType;
        if (!decimal && !FLOATING.contains(type) && !WHOLE.contains(type)) {
            return false;
        }
        boolean divides = words("Divide IntegralDivide Remainder Pmod").contains(name);
        if (!divides && !words("Add Subtract Multiply").contains(name)) {
            return false;
        }
        if (!one.failOnError()) {
            return true;
        }
        if (divides) {
            boolean fits = !decimal || ((DecimalType) result).precision() < DecimalType.MAX_PRECISION();
            return fits && isNeitherZeroNorMinusOne(right);
        }
        if (!decimal) {
            return FLOATING.contains(type);
        }
        DecimalType a = (DecimalType) left;
        DecimalType b = (DecimalType) right.dataType();
        int digits = name.equals("Multiply") ? a.precision() + b.precision() + 1
                : Math.max(a.scale(), b.scale()) + Math.max(a.precision() - a.scale(), b.precision() - b.scale()) + 1;
        return digits <= DecimalType.MAX_PRECISION();
    }

    private static boolean isNeitherZeroNorMinusOne(Expression divisor) {
        if (!(divisor instanceof Literal)) {
            return false;
        }
        try {
            BigDecimal value = new BigDecimal(String.valueOf(((Literal) divisor).value()));
            return value.signum() != 0 && value.compareTo(BigDecimal.ONE.negate()) != 0;
        } catch (NumberFormatException notANumber) {
            return false;
        }
    }

    /** Whether a sum or mean of any rows, and of its partial results, overflows neither to null nor to an error. */
    public boolean cannotOverflow(Expression function) {
        Expression child = (Expression) function.children().head();
        if (child.dataType() instanceof DecimalType) {
            return ((DecimalType) child.dataType()).precision() + DIGITS_OF_SUM <= DecimalType.MAX_PRECISION();
        }
        String type = type(child);
        if (type.equals("bigint")) {
            return name(function).equals("Average") || wrapsAround(function); // a mean's sum is a double
        }
        return FLOATING.contains(type) || WHOLE.contains(type);
    }

    /** Whether a sum of long integers wraps around where it overflows, as without ANSI: then its order does not matter. */
    private static boolean wrapsAround(Expression sum) {
        for (int i = 0; i < ((Product) sum).productArity(); i++) {
            Object part = ((Product) sum).productElement(i);
            Object mode = part instanceof Product && !(part instanceof Expression)
                    ? ((Product) part).productElement(0) : part; // within a context since Spark 4.1
            if (mode instanceof Enumeration.Value) {
                return mode.toString().equals("LEGACY");
            }
        }
        return false;
    }

    private static String type(Expression one) {
        return one.dataType().catalogString();
    }

    // -- scans -------------------------------------------------------------------------------------------------------

    private static Map fileFacts(LogicalRelation scan, HadoopFsRelation relation) {
        Map options = new HashMap();
        for (Iterator each = relation.options().iterator(); each.hasNext();) {
            Tuple2 one = (Tuple2) each.next();
            options.put(((String) one._1()).toLowerCase(Locale.ROOT), one._2());
        }
        List roots = new ArrayList();
        for (Iterator each = relation.location().rootPaths().iterator(); each.hasNext();) {
            roots.add(((Path) each.next()).getName());
        }
        Map facts = new HashMap();
        if (scan.catalogTable().isDefined()) {
            CatalogTable table = (CatalogTable) scan.catalogTable().get();
            facts.put("table", table.identifier().unquotedString());
            facts.put("provider", table.provider().isDefined() ? table.provider().get() : "");
        }
        facts.put("roots", roots);
        facts.put("options", options);
        facts.put("bucketed", Boolean.valueOf(relation.bucketSpec().isDefined()));
        facts.put("format", relation.fileFormat().toString().toLowerCase(Locale.ROOT));
        return facts;
    }

    /** Returns the files that a relation would read, how they may be cut, and which part of a row its scan wants; in pieces. */
    public List files(LogicalRelation leaf, LogicalPlan scan, Seq partitionFilters) throws Exception {
        HadoopFsRelation relation = (HadoopFsRelation) leaf.relation();
        FileFormat format = relation.fileFormat();
        List paths = new ArrayList();
        List sizes = new ArrayList();
        List splittable = new ArrayList();
        Map byEnding = new HashMap();
        for (Iterator each = relation.location().listFiles(partitionFilters, seq()).iterator(); each.hasNext();) {
            for (Iterator one = ((PartitionDirectory) each.next()).files().iterator(); one.hasNext();) {
                FileStatusWithMetadata file = (FileStatusWithMetadata) one.next();
                Path path = file.getPath();
                String name = path.getName();
                String ending = name.indexOf('.') < 0 ? "" : name.substring(name.indexOf('.'));
                if (!byEnding.containsKey(ending)) {
                    boolean cut = format.isSplitable(relation.sparkSession(), relation.options(), path);
                    byEnding.put(ending, Boolean.valueOf(cut));
                }
                paths.add(path.toString());
                sizes.add(Long.valueOf(file.getLen()));
                splittable.add(byEnding.get(ending));
            }
        }
        Map facts = new HashMap();
        facts.put("paths", paths);
        facts.put("sizes", sizes);
        facts.put("splittable", splittable);
        facts.put("fraction", Double.valueOf(fraction(leaf, scan)));
        return pieces(json.writeValueAsString(facts));
    }

    /** Whether two plans with the same result also read the same: Spark holds tables equal whatever they have listed. */
    public boolean readSame(LogicalPlan left, LogicalPlan right) {
        Seq ours = left.collectLeaves();
        Seq theirs = right.collectLeaves();
        boolean same = ours.size() == theirs.size();
        for (int i = 0; same && i < ours.size(); i++) {
            same = readsSame(ours.apply(i), theirs.apply(i));
        }
        return same;
    }

    /** Whether two relations of a plan are equal to Spark though they have listed other files. */
    public boolean mixesListings(LogicalPlan plan) {
        Seq leaves = plan.collectLeaves();
        for (int i = 0; i < leaves.size(); i++) {
            FileIndex one = listed(leaves.apply(i));
            for (int j = 0; one != null && j < i; j++) {
                FileIndex other = listed(leaves.apply(j));
                if (other != null && one.equals(other) && !readsSame(leaves.apply(i), leaves.apply(j))) {
                    return true;
                }
            }
        }
        return false;
    }

    private static FileIndex listed(Object leaf) {
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
            return readsSame(((DataSourceV2ScanRelation) left).relation(), ((DataSourceV2ScanRelation) right).relation());
        }
        FileIndex ours = listed(left);
        FileIndex theirs = listed(right);
        return ours == theirs || (ours != null && theirs != null && files(ours).equals(files(theirs)));
    }

    private static Set files(FileIndex index) {
        Set found = new HashSet();
        for (Iterator each = index.listFiles(PythonUtils.toSeq(new ArrayList()), PythonUtils.toSeq(new ArrayList())).iterator(); each.hasNext();) {
            for (Iterator one = ((PartitionDirectory) each.next()).files().iterator(); one.hasNext();) {
                FileStatusWithMetadata file = (FileStatusWithMetadata) one.next();
                found.add(file.getPath() + "|" + file.getLen() + "|" + file.getModificationTime());
            }
        }
        return found;
    }

    private static double fraction(LogicalPlan leaf, LogicalPlan scan) {
        Set used = new HashSet();
        addIds(used, scan.output().iterator());
        for (LogicalPlan node = scan; node != leaf && node.children().size() == 1;) {
            addIds(used, node.references().iterator());
            node = (LogicalPlan) node.children().head();
        }
        long whole = 0;
        long wanted = 0;
        for (Iterator each = leaf.output().iterator(); each.hasNext();) {
            Attribute one = (Attribute) each.next();
            whole += one.dataType().defaultSize();
            wanted += used.contains(id(one)) ? one.dataType().defaultSize() : 0;
        }
        return whole == 0 ? 1.0 : (double) wanted / whole;
    }

    private static void addIds(Set ids, Iterator attributes) {
        while (attributes.hasNext()) {
            ids.add(id((Attribute) attributes.next()));
        }
    }

    /** Returns a relation of files that takes its split size from another session, see `penstock.spark.files.recut`. */
    public Object recut(LogicalRelation leaf, SparkSession session) throws Exception {
        HadoopFsRelation old = (HadoopFsRelation) leaf.relation();
        Object size = session.conf().get("spark.sql.files.maxPartitionBytes");
        scala.collection.immutable.Map options =
                (scala.collection.immutable.Map) old.options().$plus(new Tuple2("penstock.split", size));
        HadoopFsRelation relation = new HadoopFsRelation(old.location(), old.partitionSchema(), old.dataSchema(),
                old.bucketSpec(), old.fileFormat(), options, session);
        return copied(leaf, seq("relation"), seq(relation));
    }

    /** Returns which part of the row groups of some files may hold rows that meet conditions; 1 if nothing is known. */
    public double rowGroupsLeft(SparkSession session, Seq paths, Seq conditions) throws Exception {
        List pushed = new ArrayList();
        for (Iterator each = conditions.iterator(); each.hasNext();) {
            Option one = DataSourceStrategy$.MODULE$.translateFilter((Expression) each.next(), true);
            if (one.isDefined()) {
                pushed.add(one.get());
            }
        }
        Configuration hadoop = session.sessionState().newHadoopConf();
        long groups = 0;
        long left = 0;
        for (Iterator each = paths.iterator(); each.hasNext();) {
            HadoopInputFile file = HadoopInputFile.fromPath(new Path((String) each.next()), hadoop);
            ParquetFileReader reader = ParquetFileReader.open(file);
            ParquetMetadata footer = reader.getFooter();
            reader.close();
            MessageType schema = footer.getFileMetaData().getSchema();
            FilterPredicate predicate = predicate(pushed, schema);
            if (predicate == null) {
                return 1.0;
            }
            groups += footer.getBlocks().size();
            FilterCompat.Filter filter = FilterCompat.get(predicate);
            left += RowGroupFilter.filterRowGroups(filter, footer.getBlocks(), schema).size();
        }
        return groups == 0 ? 1.0 : (double) left / groups;
    }

    /** Returns filters as parquet's own predicate, as far as Spark would push them; null if it would push nothing. */
    private static FilterPredicate predicate(List pushed, MessageType schema) throws Exception {
        Constructor maker = ParquetFilters.class.getConstructors()[0];
        List arguments = new ArrayList();
        arguments.addAll(Arrays.asList(new Object[] {schema, Boolean.TRUE, Boolean.TRUE, Boolean.TRUE, Boolean.TRUE}));
        arguments.addAll(Arrays.asList(new Object[] {Integer.valueOf(IN_VALUES), Boolean.FALSE, CORRECTED}));
        while (arguments.size() < maker.getParameterCount()) { // one more since Spark 4.3
            arguments.add(Option.empty());
        }
        ParquetFilters filters = (ParquetFilters) maker.newInstance(arguments.toArray());
        FilterPredicate all = null;
        for (int i = 0; i < pushed.size(); i++) {
            Option one = filters.createFilter((org.apache.spark.sql.sources.Filter) pushed.get(i));
            if (one.isDefined()) {
                FilterPredicate found = (FilterPredicate) one.get();
                all = all == null ? found : FilterApi.and(all, found);
            }
        }
        return all;
    }

    /** Returns the columns of each scan of a plan that has run, by their ids, and the rows that it gave. */
    public String scanned(SparkPlan plan) throws Exception {
        List found = new ArrayList();
        for (Iterator each = plan.collectLeaves().iterator(); each.hasNext();) {
            SparkPlan scan = (SparkPlan) each.next();
            Option rows = scan.metrics().get("numOutputRows");
            if (rows.isDefined()) {
                Set columns = new HashSet();
                addIds(columns, scan.output().iterator());
                found.add(Arrays.asList(new Object[] {columns, ((AccumulatorV2) rows.get()).value()}));
            }
        }
        return json.writeValueAsString(found);
    }

    // -- relations ---------------------------------------------------------------------------------------------------

    /** Returns what functions, bound to its rows, give of all rows of a broadcast relation; null if it holds none. */
    public InternalRow aggregated(Object relation, Seq functions) {
        if (!(relation instanceof HashedRelation)) {
            return null;
        }
        HashedRelation own = ((HashedRelation) relation).asReadOnlyCopy();
        Object[] functionsOf = new Object[functions.size()];
        Object[] state = new Object[functions.size()];
        for (int i = 0; i < state.length; i++) {
            functionsOf[i] = functions.apply(i);
            if (functionsOf[i] instanceof TypedImperativeAggregate) {
                state[i] = ((TypedImperativeAggregate) functionsOf[i]).createAggregationBuffer();
            }
        }
        if (own instanceof LongHashedRelation) {
            for (Iterator keys = own.keys(); keys.hasNext();) {
                for (Iterator rows = own.get((InternalRow) keys.next()); rows.hasNext();) {
                    update(functionsOf, state, (InternalRow) rows.next());
                }
            }
        } else {
            for (Iterator rows = own.valuesWithKeyIndex(); rows.hasNext();) {
                update(functionsOf, state, ((ValueRowWithKeyIndex) rows.next()).getValue());
            }
        }
        for (int i = 0; i < state.length; i++) {
            if (functionsOf[i] instanceof TypedImperativeAggregate) {
                state[i] = ((TypedImperativeAggregate) functionsOf[i]).eval(state[i]);
            }
        }
        return new GenericInternalRow(state);
    }

    private static void update(Object[] functions, Object[] state, InternalRow row) {
        for (int i = 0; i < functions.length; i++) {
            if (functions[i] instanceof TypedImperativeAggregate) {
                state[i] = ((TypedImperativeAggregate) functions[i]).update(state[i], row);
                continue;
            }
            Expression child = (Expression) ((Expression) functions[i]).children().head();
            Object value = child.eval(row);
            if (value != null && (state[i] == null || precedes(functions[i], child, value, state[i]))) {
                state[i] = InternalRow.copyValue(value);
            }
        }
    }

    private static boolean precedes(Object function, Expression child, Object value, Object best) {
        int order = TypeUtils.getInterpretedOrdering(child.dataType()).compare(value, best);
        if (function instanceof Min) {
            return order < 0;
        }
        if (function instanceof Max) {
            return order > 0;
        }
        throw new IllegalArgumentException("no way to compute " + function);
    }
}
