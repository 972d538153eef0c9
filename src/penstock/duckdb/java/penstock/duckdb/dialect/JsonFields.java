package penstock.duckdb.dialect;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;

import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

import penstock.plans.Catalyst;

/**
 * Values in JSON texts in DuckDB's SQL, converted as `from_json` does.
 *
 * A struct is a STRUCT of the JSON texts of its fields, an array a JSON text. A value of another type than the schema's is
 * an error, so that Spark computes the rows.
 */
public final class JsonFields {
    /** The types of JSON values that become a type of Spark. */
    private static final Map<String, Object> JSON_TYPES = Catalyst.pairs("string 'VARCHAR' boolean 'BOOLEAN' int 'UBIGINT','BIGINT' "
            + "bigint 'UBIGINT','BIGINT' double 'UBIGINT','BIGINT','DOUBLE'");
    private static final String NAME = "[A-Za-z_][A-Za-z0-9_]*";
    private static final String OTHER_TYPE = "error('a JSON value of another type')";
    private static final String DUPLICATE = "error('a JSON name that occurs twice')";

    /** Whether values of a type are structs or arrays. */
    public static boolean areNested(DataType type) {
        return type instanceof StructType || type instanceof ArrayType;
    }

    /** Returns the struct of a JSON object, a column or variable. Of equal names, Spark returns the last value and DuckDB the first. */
    public static String struct(String object, StructType type) throws Declined {
        List<String> names = new ArrayList<>();
        List<String> fields = new ArrayList<>();
        List<String> presences = new ArrayList<>();
        Set<Object> distinctNames = new HashSet<>();
        for (StructField field : type.fields()) {
            String name = field.name();
            if (!name.matches(NAME) || !distinctNames.add(name.toLowerCase(Locale.ROOT))) {
                throw new Declined("JSON fields with unusual names, or names that differ in case only");
            }
            if (name.equals(SQLConf.get().columnNameOfCorruptRecord()) || field.metadata().contains("EXISTS_DEFAULT")) {
                throw new Declined("a JSON field of corrupt records, or with a default");
            }
            names.add("'" + name + "'");
            fields.add("\"" + name + "\":\"JSON\"");
            presences.add("CAST(struct_extract(s, '" + name + "') IS NOT NULL AS INTEGER)");
        }
        if (names.isEmpty()) {
            throw new Declined("a JSON object without fields");
        }
        String struct = "json_transform(" + object + ", '{" + String.join(",", fields) + "}')";
        String keys = "list_filter(json_keys(" + object + "), lambda k: k IN (" + String.join(", ", names) + "))";
        if (names.size() == 1) {
            return "CASE WHEN len(" + keys + ") > 1 THEN " + DUPLICATE + " ELSE " + struct + " END";
        }
        // Counting distinct names is slow, and not needed if each name belongs to a value other than null.
        String hasDuplicates = "len(" + keys + ") > " + String.join(" + ", presences) + " AND len(" + keys + ") <> list_unique(" + keys + ")";
        return bound("s", struct, "CASE WHEN " + hasDuplicates + " THEN " + DUPLICATE + " ELSE s END");
    }

    /** Returns the value of a JSON text; null for null and for a missing value. */
    public static String value(String json, DataType type) throws Declined {
        String value;
        Object jsonTypes;
        if (type instanceof ArrayType) {
            jsonTypes = "'ARRAY'";
            String otherElement = otherElement(((ArrayType) type).elementType());
            value = otherElement == null ? "v" : "CASE WHEN " + otherElement.replace("$array", "v") + " THEN " + OTHER_TYPE + " ELSE v END";
        } else if (type instanceof StructType) {
            jsonTypes = "'OBJECT'";
            value = struct("v", (StructType) type);
        } else {
            jsonTypes = JSON_TYPES.get(type.catalogString());
            value = scalar(type.catalogString());
        }
        if (jsonTypes == null) {
            throw new Declined("a JSON value as " + type.catalogString());
        }
        return bound("v", json, "CASE WHEN json_type(v) IN (" + jsonTypes + ") THEN " + value + " WHEN json_type(v) <> 'NULL' THEN " + OTHER_TYPE + " END");
    }

    /** Returns whether an array ``$array`` has an element of another type, as Spark's array is null then; null if none can have. */
    private static String otherElement(DataType type) throws Declined {
        String jsonTypes = type instanceof StructType ? "'OBJECT'" : type instanceof ArrayType ? "'ARRAY'" : (String) JSON_TYPES.get(type.catalogString());
        if (type.catalogString().equals("string")) {
            return null; // Spark reads every value as a text
        }
        if (jsonTypes == null) {
            throw new Declined("JSON arrays of " + type.catalogString());
        }
        String hasOther = "NOT list_has_all(['NULL', " + jsonTypes + "], json_type($array, '$[*]'))";
        String otherInner = type instanceof ArrayType ? otherElement(((ArrayType) type).elementType()) : null;
        String isOther = null;
        if (otherInner != null) {
            isOther = otherInner.replace("$array", "e");
        } else if (type.catalogString().endsWith("int")) {
            isOther = "json_type(e) <> 'NULL' AND TRY_CAST(e AS " + type.catalogString() + ") IS NULL";
        }
        return isOther == null ? hasOther : hasOther + " OR len(list_filter(json_extract($array, '$[*]'), lambda e: " + isOther + ")) > 0";
    }

    private static String scalar(String type) {
        if (type.equals("string")) {
            return "json_extract_string(v, '$')";
        }
        return "CAST(v AS " + type.toUpperCase(Locale.ROOT) + ")";
    }

    /** Returns an expression of a variable, which is evaluated once although the expression may use it repeatedly. */
    public static String bound(String variable, String value, String expression) {
        return "list_transform([" + value + "], lambda " + variable + ": " + expression + ")[1]";
    }
}
