package penstock;

import java.math.BigDecimal;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Like;
import org.apache.spark.sql.types.DecimalType;

/** Functions of dates, texts and the digits of decimals in the SQL of DuckDB; see `NativeSql`. */
final class NativeFunctions {
    private static final List<String> DATE_PARTS = Arrays.asList("Year Month DayOfMonth".split(" "));
    private static final List<String> DATE_FUNCTIONS = Arrays.asList("year month day".split(" "));

    private NativeFunctions() {
    }

    static String of(Expression one, List<?> parts) throws NativeSql.Declined {
        String name = Catalyst.name(one);
        if (one instanceof Like) {
            return NativeTexts.like((Like) one);
        }
        if (DATE_PARTS.contains(name)) {
            return "CAST(" + DATE_FUNCTIONS.get(DATE_PARTS.indexOf(name)) + "(" + NativeTypes.finite(NativeSql.part(parts, 0)) + ") AS INTEGER)";
        }
        if (name.equals("UnscaledValue")) {
            DecimalType type = (DecimalType) Catalyst.first(one).dataType();
            String decimal = NativeSql.part(parts, 0);
            if (type.precision() + type.scale() > 18) { // DuckDB keeps a product of decimals of 64 bits in 64 bits
                decimal = "CAST(" + decimal + " AS DECIMAL(" + NativeTypes.summed(type).precision() + "," + type.scale() + "))";
            }
            return "CAST(" + NativeDecimals.digits(decimal, type) + " AS BIGINT)";
        }
        if (name.equals("MakeDecimal")) {
            DecimalType wanted = (DecimalType) one.dataType();
            return NativeDecimals.ofDigits(NativeSql.part(parts, 0), wanted);
        }
        if (name.equals("Concat") && NativeTypes.nameOf(one.dataType()).equals("VARCHAR") && !parts.isEmpty()) {
            NativeSql.checkSameTypes(parts);
            StringBuilder joined = new StringBuilder();
            for (int i = 0; i < parts.size(); i++) {
                joined.append(i == 0 ? "(" : " || ").append(NativeSql.part(parts, i));
            }
            return joined.append(")").toString(); // null if one part is, as in Spark
        }
        if (name.equals("DateAdd") || name.equals("DateSub")) {
            return "CAST((" + NativeTypes.finite(NativeSql.part(parts, 0)) + (name.equals("DateAdd") ? " + " : " - ") + NativeSql.part(parts, 1) + ") AS DATE)";
        }
        if (name.equals("StartsWith") || name.equals("EndsWith") || name.equals("Contains")) {
            String function = name.equals("StartsWith") ? "starts_with" : name.equals("EndsWith") ? "suffix" : "contains";
            return function + "(" + NativeSql.listed(parts) + ")";
        }
        if (name.equals("Upper") || name.equals("Lower")) {
            return NativeTexts.inCase(NativeSql.part(parts, 0), name.toLowerCase(Locale.ROOT));
        }
        if (name.equals("Substring")) {
            return NativeTexts.substring(parts);
        }
        if (name.equals("BloomFilterMightContain")) { // without it, most groups of an aggregate would be of no use
            throw new NativeSql.Declined("a Bloom filter of the keys of another table");
        }
        throw new NativeSql.Declined("expression " + name);
    }
}
