package penstock;

import java.math.BigDecimal;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Like;
import org.apache.spark.sql.types.DecimalType;

/** Functions of dates, strings and unscaled decimals in DuckDB's SQL; see `NativeSql`. */
final class NativeFunctions {
    private static final List<String> DATE_PARTS = Arrays.asList("Year Month DayOfMonth".split(" "));
    private static final List<String> DATE_FUNCTIONS = Arrays.asList("year month day".split(" "));

    private NativeFunctions() {
    }

    static String of(Expression expression, List<?> arguments) throws NativeSql.Declined {
        String name = Catalyst.name(expression);
        if (expression instanceof Like) {
            return NativeStrings.like((Like) expression);
        }
        if (DATE_PARTS.contains(name)) {
            return "CAST(" + DATE_FUNCTIONS.get(DATE_PARTS.indexOf(name)) + "(" + NativeTypes.finite(NativeSql.at(arguments, 0)) + ") AS INTEGER)";
        }
        if (name.equals("UnscaledValue")) {
            DecimalType type = (DecimalType) Catalyst.first(expression).dataType();
            String decimal = NativeSql.at(arguments, 0);
            if (type.precision() + type.scale() > 18) { // DuckDB computes a product of 64-bit decimals in 64 bits
                decimal = "CAST(" + decimal + " AS DECIMAL(" + NativeTypes.summed(type).precision() + "," + type.scale() + "))";
            }
            return "CAST(" + NativeDecimals.unscaled(decimal, type) + " AS BIGINT)";
        }
        if (name.equals("MakeDecimal")) {
            DecimalType type = (DecimalType) expression.dataType();
            return NativeDecimals.ofUnscaled(NativeSql.at(arguments, 0), type);
        }
        if (name.equals("Concat") && NativeTypes.nameOf(expression.dataType()).equals("VARCHAR") && !arguments.isEmpty()) {
            NativeSql.checkSameTypes(arguments);
            StringBuilder concatenation = new StringBuilder();
            for (int i = 0; i < arguments.size(); i++) {
                concatenation.append(i == 0 ? "(" : " || ").append(NativeSql.at(arguments, i));
            }
            return concatenation.append(")").toString(); // null if an argument is null, as in Spark
        }
        if (name.equals("DateAdd") || name.equals("DateSub")) {
            return "CAST((" + NativeTypes.finite(NativeSql.at(arguments, 0)) + (name.equals("DateAdd") ? " + " : " - ") + NativeSql.at(arguments, 1) + ") AS DATE)";
        }
        if (name.equals("StartsWith") || name.equals("EndsWith") || name.equals("Contains")) {
            String function = name.equals("StartsWith") ? "starts_with" : name.equals("EndsWith") ? "suffix" : "contains";
            return function + "(" + NativeSql.list(arguments) + ")";
        }
        if (name.equals("Upper") || name.equals("Lower")) {
            return NativeStrings.inCase(NativeSql.at(arguments, 0), name.toLowerCase(Locale.ROOT));
        }
        if (name.equals("Substring")) {
            return NativeStrings.substring(arguments);
        }
        if (name.equals("BloomFilterMightContain")) { // without the filter, an aggregate would compute many useless groups
            throw new NativeSql.Declined("a Bloom filter of the keys of another table");
        }
        throw new NativeSql.Declined("expression " + name);
    }
}
