package penstock.duckdb.dialect;

import java.io.ByteArrayOutputStream;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.api.python.SimplePythonFunction;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedArgumentExpression;
import org.apache.spark.sql.catalyst.expressions.PythonUDF;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.python.ArrowEvalPythonExec;
import org.apache.spark.sql.execution.python.ArrowPythonRunner;
import org.apache.spark.sql.execution.python.MapInBatchExec;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;

import scala.Tuple2;
import scala.collection.immutable.Seq;

import penstock.bridge.Answer;
import penstock.plans.Catalyst;

/** The Python functions of an operator, which a DuckDB worker calls; see `duckdb/worker/functions.py`. */
public final class PythonFunctions {
    private static final String PROFILER = "spark.sql.pyspark.udf.profiler";
    private static final String LARGE_TYPES = "spark.sql.execution.arrow.useLargeVarTypes";
    /** The values that the functions get, without duplicates. */
    public final List<Object> arguments = new ArrayList<>();
    /** The names of the arguments, as the functions see them. */
    public final List<Object> argumentNames = new ArrayList<>();
    /** The columns that the functions return. */
    public final Seq<Attribute> results;
    /** Whether the functions return other rows than they get, instead of a value per row. */
    public final boolean mapsRows;
    private final List<Object> broadcastVariables = new ArrayList<>();
    /** For each value of a row, the functions that compute it as PySpark serializes them, in the order of their calls. */
    private final List<Object> functions = new ArrayList<>();
    private final int evalType;
    private final SparkPlan operator;

    /** Whether a worker may call the functions of an operator. */
    public static boolean areIn(SparkPlan operator) {
        return operator instanceof ArrowEvalPythonExec || operator instanceof MapInBatchExec;
    }

    /** Whether a worker may call functions of a plan. */
    public static boolean areBelow(SparkPlan plan) {
        boolean areBelow = areIn(plan);
        for (Object child : Catalyst.each(plan.children())) {
            areBelow = areBelow || areBelow((SparkPlan) child);
        }
        return areBelow;
    }

    /** Reads the functions of an operator for which `areIn` is true. */
    public PythonFunctions(SparkPlan operator) throws Declined {
        this.operator = operator;
        mapsRows = operator instanceof MapInBatchExec;
        if (mapsRows) {
            MapInBatchExec map = (MapInBatchExec) operator;
            if (map.isBarrier() || map.profile().isDefined()) {
                throw new Declined("a Python function with a barrier or a resource profile");
            }
            evalType = map.pythonEvalType();
            results = operator.output();
            for (Attribute column : Catalyst.each(Catalyst.onlyChild(operator).output())) {
                arguments.add(column);
                argumentNames.add(column.name());
            }
            add((PythonUDF) map.func(), new ArrayList<>(), new LinkedHashMap<>());
        } else {
            evalType = ((ArrowEvalPythonExec) operator).evalType();
            results = ((ArrowEvalPythonExec) operator).resultAttrs();
            for (PythonUDF function : Catalyst.each(((ArrowEvalPythonExec) operator).udfs())) {
                addWithArguments(function);
            }
        }
        if (arguments.isEmpty()) {
            throw new Declined("a Python function without arguments");
        }
    }

    private void addWithArguments(PythonUDF function) throws Declined {
        PythonUDF innermost = function;
        while (innermost.children().size() == 1 && Catalyst.first(innermost) instanceof PythonUDF) {
            innermost = (PythonUDF) Catalyst.first(innermost);
        }
        List<Object> positions = new ArrayList<>();
        Map<String, Object> positionsByName = new LinkedHashMap<>(); // in the order of the call, which the function sees
        for (Expression child : Catalyst.each(innermost.children())) {
            if (child instanceof NamedArgumentExpression) {
                NamedArgumentExpression named = (NamedArgumentExpression) child;
                positionsByName.put(named.key(), position(named.value()));
            } else {
                positions.add(position(child));
            }
        }
        add(function, positions, positionsByName);
    }

    private int position(Expression argument) {
        for (int i = 0; i < arguments.size(); i++) {
            if (argument.semanticEquals((Expression) arguments.get(i))) {
                return i;
            }
        }
        argumentNames.add("_" + arguments.size());
        arguments.add(argument);
        return arguments.size() - 1;
    }

    private void add(PythonUDF outermost, List<Object> positions, Map<String, Object> positionsByName) throws Declined {
        List<Object> commands = new ArrayList<>();
        PythonUDF function = outermost;
        while (function != null) {
            if (!mapsRows && !function.udfDeterministic()) {
                throw new Declined("a Python function that is not deterministic");
            }
            commands.add(0, encoded(function.func()));
            broadcastVariables.addAll(function.func().broadcastVars());
            Object child = !mapsRows && function.children().size() == 1 ? Catalyst.first(function) : null;
            function = child instanceof PythonUDF ? (PythonUDF) child : null;
        }
        functions.add(Answer.facts("commands", commands, "positions", positions, "positions_by_name", positionsByName,
                "result_id", outermost.resultId().id()));
    }

    private static String encoded(PythonFunction function) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        for (Object element : Catalyst.each(function.command())) {
            bytes.write((Byte) element);
        }
        return Base64.getEncoder().encodeToString(bytes.toByteArray());
    }

    /**
     * Returns what the worker needs to call the functions; raises `Declined` if a setting prevents it.
     *
     * @param columns the columns that stay beside the results
     * @param argumentQueries the SQL expressions of the arguments
     * @param rows the query of the rows
     */
    public Map<String, Object> call(String name, List<?> columns, List<?> argumentQueries, String rows, List<?> resultColumns)
            throws Declined {
        Map<String, Object> settings = new HashMap<>();
        for (Tuple2<?, ?> setting : Catalyst.each(ArrowPythonRunner.getPythonRunnerConfMap(operator.conf()).toSeq())) {
            settings.put((String) setting._1(), setting._2());
        }
        if (settings.containsKey(PROFILER) || "true".equals(settings.get(LARGE_TYPES))) {
            throw new Declined("Python functions with a profiler, or with large Arrow types");
        }
        int maxRows = operator.conf().arrowMaxRecordsPerBatch();
        if (maxRows <= 0) {
            throw new Declined("Python functions that get all rows of a task in one batch");
        }
        List<String> values = new ArrayList<>();
        for (Object column : columns) {
            values.add((String) ((Map<?, ?>) column).get("name"));
        }
        List<Object> argumentFacts = new ArrayList<>();
        List<Object> nullable = new ArrayList<>();
        List<StructField> fields = new ArrayList<>();
        for (int i = 0; i < arguments.size(); i++) {
            Expression argument = (Expression) arguments.get(i);
            values.add(argumentQueries.get(i) + " AS argument_" + i);
            argumentFacts.add(Answer.facts("name", "argument_" + i, "type", Catalyst.type(argument)));
            nullable.add(!mapsRows || argument.nullable());
            fields.add(DataTypes.createStructField("_" + i, argument.dataType(), true));
        }
        String query = "SELECT " + String.join(", ", values) + " FROM (" + rows + ")";
        return Answer.facts("name", name, "sql", query, "columns", columns, "arguments", argumentFacts, "results", resultColumns,
                "eval_type", evalType, "functions", functions, "settings", settings, "argument_names", argumentNames, "argument_nullable",
                nullable, "argument_types", DataTypes.createStructType(fields).json(), "maps_rows", mapsRows, "max_batch_rows", maxRows,
                "max_batch_bytes", operator.conf().arrowMaxBytesPerBatch());
    }

    /** Returns a function that also gets the broadcast variables of the functions of several operators. */
    public static PythonUDF withVariables(PythonUDF function, List<?> operators) {
        PythonFunction own = function.func();
        List<Object> variables = new ArrayList<>(own.broadcastVars());
        for (Object functions : operators) {
            variables.addAll(((PythonFunctions) functions).broadcastVariables);
        }
        SimplePythonFunction merged = new SimplePythonFunction(own.command(), own.envVars(), own.pythonIncludes(), own.pythonExec(),
                own.pythonVer(), cast(variables), own.accumulator());
        return function.copy(function.name(), merged, function.dataType(), function.children(), function.evalType(),
                function.udfDeterministic(), function.resultId());
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static <T> List<T> cast(List<Object> values) {
        return (List) values;
    }
}
