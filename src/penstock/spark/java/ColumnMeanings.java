package penstock;

import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;

import scala.Option;
import scala.Product;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/** What the columns of a plan are computed of, down to its sources: texts that hold in every plan of a query. */
final class ColumnMeanings {
    private final Map<String, Object> meanings = new HashMap<>();

    /** By what the functions of the aggregate that is read are grouped; empty outside of one. */
    private String groups = "";

    /** Says what aggregate functions are grouped by from here on; empty for by nothing. */
    void groupedBy(String keys) {
        groups = keys;
    }

    /** Notes what columns with names are computed of. */
    void name(List<?> columns) {
        Map<String, Object> made = new HashMap<>();
        for (Object column : columns) {
            if (column instanceof Alias) {
                Expression value = Catalyst.first((Alias) column);
                boolean isNamed = value instanceof Attribute || value instanceof AggregateExpression;
                made.put(Catalyst.id(((Alias) column).toAttribute()), isNamed ? text(value) : digest(text(value)));
            }
        }
        meanings.putAll(made);
    }

    /** Notes what a column means, unless that is known. */
    void ifNew(Attribute column, String meaning) {
        String id = Catalyst.id(column);
        if (!meanings.containsKey(id)) {
            meanings.put(id, digest(meaning));
        }
    }

    /** Returns a text of an expression, or of anything in one, that holds in every plan of a query. */
    String text(Object part) {
        if (part instanceof Attribute) {
            Object known = meanings.get(Catalyst.id((Attribute) part));
            return known == null ? ((Attribute) part).name() : String.valueOf(known);
        }
        if (part instanceof Option) {
            return ((Option<?>) part).isDefined() ? text(((Option<?>) part).get()) : "";
        }
        if (part instanceof Seq) {
            return text(Catalyst.each((Seq<?>) part));
        }
        if (part instanceof Collection) {
            StringBuilder texts = new StringBuilder("(");
            for (Object one : (Collection<?>) part) {
                texts.append(text(one)).append(", ");
            }
            return texts.append(")").toString();
        }
        if (part instanceof AggregateExpression && !groups.isEmpty()) {
            return digest(groups + fields((Product) part));
        }
        if (part instanceof ExprId) {
            return "";
        }
        if (part instanceof PythonFunction) { // its code may be long
            return String.valueOf(part.hashCode());
        }
        if (part instanceof LogicalPlan) {
            return String.valueOf(((LogicalPlan) part).canonicalized().hashCode());
        }
        if (part instanceof Expression && part instanceof Product) {
            return fields((Product) part);
        }
        return String.valueOf(part);
    }

    private String fields(Product part) {
        StringBuilder texts = new StringBuilder(part.productPrefix()).append("(");
        Iterator<?> fields = part.productIterator();
        while (fields.hasNext()) {
            Object field = fields.next();
            texts.append(text(field)).append(", ");
        }
        return texts.append(")").toString();
    }

    /** Returns a short text for a long one. */
    static String digest(String text) {
        try {
            byte[] found = MessageDigest.getInstance("SHA-256").digest(text.getBytes(StandardCharsets.UTF_8));
            return new BigInteger(1, found).toString(Character.MAX_RADIX).substring(0, 16);
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error); // every Java has it
        }
    }
}
