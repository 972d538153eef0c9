package penstock.duckdb;

import java.time.ZoneId;

import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Explode;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetJsonObject;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.JsonToStructs;
import org.apache.spark.sql.catalyst.expressions.Size;
import org.apache.spark.sql.catalyst.plans.logical.Generate;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.execution.GenerateExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

import scala.Option;
import scala.collection.immutable.Seq;

import penstock.duckdb.dialect.Declined;
import penstock.duckdb.dialect.JsonFields;
import penstock.plans.Catalyst;

/**
 * Structs and arrays from JSON texts, the only structs and arrays that DuckDB computes.
 *
 * Operators pass them, and read their fields and elements. None returns, compares or hashes them.
 */
final class NativeJson {
    private static final String PARTIAL_RESULTS = "spark.sql.json.enablePartialResults";

    /** Whether an operator of a plan parses JSON texts, which takes Spark several microseconds per row. */
    static boolean isParsedBelow(SparkPlan plan) {
        for (SparkPlan node : Catalyst.nodes(plan)) {
            for (Expression part : Catalyst.parts(node.expressions())) {
                if (part instanceof JsonToStructs || part instanceof GetJsonObject) {
                    return true;
                }
            }
        }
        return false;
    }

    /** Returns a struct or an array; see `JsonFields`. */
    static String of(Expression expression) throws Declined {
        NativeTemplates.checkIncluded(expression);
        if (expression instanceof Alias) {
            return of(Catalyst.first(expression));
        }
        if (expression instanceof AttributeReference) {
            return "c" + Catalyst.id((AttributeReference) expression);
        }
        if (expression instanceof JsonToStructs && expression.dataType() instanceof StructType) {
            JsonToStructs parser = (JsonToStructs) expression;
            SQLConf settings = SQLConf.get();
            if (!parser.options().isEmpty() || !parser.timeZoneId().equals(Option.apply(settings.sessionLocalTimeZone()))) {
                throw new Declined("from_json with options, or with another time zone");
            }
            if (!settings.legacyTimeParserPolicy().toString().equals("CORRECTED") || !Boolean.parseBoolean(settings.getConfString(PARTIAL_RESULTS, "true"))) {
                throw new Declined("from_json with times as in Spark 2, or without partial results");
            }
            return JsonFields.bound("t", NativeTemplates.of(expression), JsonFields.struct("t", (StructType) expression.dataType()));
        }
        if (expression instanceof GetStructField) {
            return field((GetStructField) expression);
        }
        throw new Declined("type " + expression.dataType().catalogString());
    }

    static String field(GetStructField field) throws Declined {
        StructField target = ((StructType) field.child().dataType()).fields()[field.ordinal()];
        return value("struct_extract(" + of(field.child()) + ", '" + target.name() + "')", target.dataType());
    }

    /** Returns the value of a JSON text. */
    private static String value(String json, DataType type) throws Declined {
        boolean isText = type.catalogString().equals("date") || NativeTimes.isTime(type);
        ZoneId zone = DateTimeUtils.getZoneId(SQLConf.get().sessionLocalTimeZone());
        return isText ? NativeTimes.ofText(JsonFields.value(json, DataTypes.StringType), type, zone) : JsonFields.value(json, type);
    }

    static String size(Size size) throws Declined {
        if (!(size.child().dataType() instanceof ArrayType)) {
            throw new Declined("the size of a map");
        }
        String length = "CAST(json_array_length(" + of(size.child()) + ") AS INTEGER)";
        return size.legacySizeOfNull() ? "coalesce(" + length + ", -1)" : length;
    }

    static String exploded(Generate plan, String rows) throws Declined {
        return exploded((Expression) plan.generator(), plan.outer(), plan.requiredChildOutput(), plan.generatorOutput(), rows);
    }

    static String exploded(GenerateExec plan, String rows) throws Declined {
        return exploded((Expression) plan.generator(), plan.outer(), plan.requiredChildOutput(), plan.generatorOutput(), rows);
    }

    /** Returns rows with the elements of an array, beside other columns of its row. */
    private static String exploded(Expression generator, boolean isOuter, Seq<Attribute> columns, Seq<Attribute> elements, String rows) throws Declined {
        NativeTemplates.checkIncluded(generator);
        if (!(generator instanceof Explode) || !(Catalyst.first(generator).dataType() instanceof ArrayType)) {
            throw new Declined("a function that returns rows other than explode of an array");
        }
        Attribute element = (Attribute) (Object) elements.head();
        String beside = columns.isEmpty() ? "" : NativeSql.columns(columns) + ", ";
        String array = of(Catalyst.first(generator));
        String values = "json_extract(" + array + ", '$[*]')";
        if (isOuter) {
            values = JsonFields.bound("v", array, "CASE WHEN json_array_length(v) > 0 THEN json_extract(v, '$[*]') ELSE [json('null')] END");
        }
        return "SELECT " + beside + value("element", element.dataType()) + " AS c" + Catalyst.id(element)
                + " FROM (SELECT " + beside + "unnest(" + values + ") AS element FROM (" + rows + "))";
    }
}
