package penstock.plans;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.core.JsonProcessingException;

import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.OrderUtils;
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys;
import org.apache.spark.sql.catalyst.plans.logical.HintInfo;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.JoinStrategyHint;
import org.apache.spark.sql.catalyst.util.UnsafeRowUtils;
import org.apache.spark.sql.types.DataType;

import scala.Option;
import scala.Product;
import scala.collection.immutable.Seq;

import penstock.bridge.Answer;

/** Reads the keys of a join; see `joins.join_facts`. */
public final class JoinReader {
    /** Returns facts of an equi-join, its left keys and its right keys; null for other joins. */
    public Answer read(Join join) throws JsonProcessingException {
        Option<?> extracted = ExtractEquiJoinKeys.unapply(join);
        if (extracted.isEmpty()) {
            return null;
        }
        Product parts = (Product) extracted.get(); // the number of elements depends on the release
        List<Object> keys = new ArrayList<>();
        List<Object> handles = new ArrayList<>();
        boolean isHashable = true;
        for (int side = 1; side <= 2; side++) {
            for (Object element : Catalyst.each((Seq<?>) parts.productElement(side))) {
                Expression key = (Expression) element;
                DataType type = key.dataType();
                isHashable = isHashable && UnsafeRowUtils.isBinaryStable(type) && OrderUtils.isOrderable(type);
                keys.add(keyFacts(key));
                handles.add(key);
            }
        }
        return Answer.of(Answer.facts("join_type", join.joinType().toString(), "left_hint", hint(join.hint().leftHint()),
                "right_hint", hint(join.hint().rightHint()), "keys", keys, "is_hashable", isHashable,
                "cannot_fail", ExpressionSafety.cannotFail(join.expressions())), handles);
    }

    private static Map<String, Object> keyFacts(Expression key) {
        Seq<Attribute> columns = key.references().toSeq();
        return Answer.facts("key", ExpressionKeys.of(key), "columns", Catalyst.ids(columns), "names", Catalyst.names(columns),
                "is_column", key instanceof AttributeReference, "is_deterministic", key.deterministic(),
                "cannot_fail", ExpressionSafety.cannotFail(key), "type", Catalyst.type(key));
    }

    private static String hint(Option<?> side) {
        Option<?> strategy = side.isDefined() ? ((HintInfo) side.get()).strategy() : Option.empty();
        return strategy.isDefined() ? ((JoinStrategyHint) strategy.get()).displayName() : null;
    }
}
