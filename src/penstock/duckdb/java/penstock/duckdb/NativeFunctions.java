package penstock.duckdb;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Like;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.types.DecimalType;

import penstock.duckdb.dialect.Declined;
import penstock.plans.Catalyst;
import penstock.plans.PatternSafety;
import penstock.plans.NumericTypes;

/** Functions in DuckDB's SQL that templates cannot express; see `NativeTemplates`. */
final class NativeFunctions {
    static String of(Expression expression) throws Declined {
        String name = Catalyst.name(expression);
        if (expression instanceof Like) {
            return like((Like) expression);
        }
        if (name.equals("UnscaledValue")) {
            DecimalType type = (DecimalType) Catalyst.first(expression).dataType();
            String decimal = NativeSql.of(Catalyst.first(expression));
            if (type.precision() + type.scale() > 18) { // DuckDB computes a product of 64-bit decimals in 64 bits
                decimal = "CAST(" + decimal + " AS DECIMAL(" + NumericTypes.sumType(type).precision() + "," + type.scale() + "))";
            }
            return "CAST(" + NativeDecimals.unscaled(decimal, type) + " AS BIGINT)";
        }
        if (name.equals("MakeDecimal")) {
            return NativeDecimals.ofUnscaled(NativeSql.of(Catalyst.first(expression)), (DecimalType) expression.dataType());
        }
        if (name.equals("BloomFilterMightContain")) { // without it, DuckDB would compute groups that a join drops
            throw new Declined("a Bloom filter of the keys of another table");
        }
        throw new Declined("expression " + name);
    }

    private static String like(Like like) throws Declined {
        if (!(like.right() instanceof Literal) || ((Literal) like.right()).value() == null) {
            throw new Declined("a pattern that is not constant");
        }
        if (!PatternSafety.hasValidPattern(like)) { // an error in Spark
            throw new Declined("a pattern with an invalid escape");
        }
        String pattern = ((Literal) like.right()).value().toString();
        String escape = String.valueOf(like.escapeChar());
        return "(" + NativeSql.of(like.left()) + " LIKE " + NativeTypes.literal(pattern, like.right().dataType())
                + (pattern.contains(escape) ? " ESCAPE " + NativeTypes.literal(escape, like.right().dataType()) : "") + ")";
    }
}
