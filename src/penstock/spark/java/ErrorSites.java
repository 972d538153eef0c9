package penstock;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;

import com.fasterxml.jackson.core.JsonProcessingException;

import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.Window;

import scala.Option;
import scala.collection.immutable.Seq;

/** The places of a plan where a row can raise an error, and what leaves out rows before them; see `error_sites`. */
public final class ErrorSites {
    private final List<Object> sites = new ArrayList<>();
    private final ColumnMeanings meanings = new ColumnMeanings();

    /** Returns the places of a plan, each as its text and the texts of what is before it. */
    public Object read(LogicalPlan plan) throws JsonProcessingException {
        ErrorSites found = new ErrorSites();
        found.visit(plan);
        return Answer.of((Object) found.sites);
    }

    /** Notes the places of a plan; returns what leaves out rows in it. */
    private Set<String> visit(LogicalPlan plan) {
        Set<String> before = new TreeSet<>();
        for (Object child : Catalyst.each(plan.children())) {
            before.addAll(visit((LogicalPlan) child));
        }
        if (plan instanceof Filter) {
            filter(((Filter) plan).condition(), before);
        } else if (plan instanceof Project) {
            named(Catalyst.each(((Project) plan).projectList()), before);
        } else if (plan instanceof Window) {
            named(Catalyst.each(((Window) plan).windowExpressions()), before);
        } else if (plan instanceof Aggregate) {
            aggregate((Aggregate) plan, before);
        } else if (plan instanceof Join) {
            join((Join) plan, before);
        } else if (plan instanceof Sort || plan instanceof SubqueryAlias) {
            all(Catalyst.each(plan.expressions()), before);
        } else {
            other(plan, before);
        }
        return before;
    }

    private void filter(Expression condition, Set<String> before) {
        if (condition instanceof And) {
            filter(((And) condition).left(), before);
            filter(((And) condition).right(), before);
        } else {
            one(condition, before);
            before.add(ColumnMeanings.digest("filter " + meanings.text(condition)));
        }
    }

    private void join(Join join, Set<String> before) {
        Set<String> parts = new TreeSet<>();
        Option<?> condition = join.condition();
        if (condition.isDefined()) {
            Object whole = condition.get();
            split((Expression) whole, parts, before);
        }
        before.add(ColumnMeanings.digest("join " + join.joinType() + parts));
    }

    private void split(Expression condition, Set<String> parts, Set<String> before) {
        if (condition instanceof And) {
            split(((And) condition).left(), parts, before);
            split(((And) condition).right(), parts, before);
        } else {
            one(condition, before);
            parts.add(meanings.text(condition));
        }
    }

    /** Functions take the rows; what is made of their values is computed for each group. */
    private void aggregate(Aggregate plan, Set<String> before) {
        Seq<?> keys = plan.groupingExpressions();
        all(Catalyst.each(keys), before);
        Seq<?> columns = plan.aggregateExpressions();
        for (Object column : Catalyst.each(columns)) {
            functions((Expression) column, before);
        }
        String groups = "groups " + meanings.text(keys);
        before.add(ColumnMeanings.digest(groups));
        meanings.groupedBy(groups);
        named(Catalyst.each(columns), before);
        meanings.groupedBy("");
    }

    private void functions(Expression expression, Set<String> before) {
        if (expression instanceof AggregateExpression) {
            one(expression, before);
        } else {
            for (Object part : Catalyst.each(expression.children())) {
                functions((Expression) part, before);
            }
        }
    }

    /** Notes what computes columns, and what they mean from here on. */
    private void named(List<?> columns, Set<String> before) {
        for (Object column : columns) {
            if (column instanceof Alias) {
                Expression value = Catalyst.first((Alias) column);
                if (!ExpressionSafety.cannotFail(withoutFunctions(value))) {
                    site(value, before);
                }
            }
        }
        meanings.name(columns);
    }

    /** Returns an expression with nulls in place of aggregate functions, which were computed before it. */
    private static Expression withoutFunctions(Expression one) {
        if (one instanceof AggregateExpression) {
            return new Literal(null, one.dataType());
        }
        List<Expression> parts = new ArrayList<>();
        boolean differs = false;
        for (Object part : Catalyst.each(one.children())) {
            parts.add(withoutFunctions((Expression) part));
            differs |= parts.get(parts.size() - 1) != part;
        }
        return differs ? (Expression) (Object) one.withNewChildren(PythonUtils.toSeq(parts)) : one;
    }

    /** Takes an operator of which nothing is known for one that leaves out rows, and a source for what it is. */
    private void other(LogicalPlan plan, Set<String> before) {
        all(Catalyst.each(plan.expressions()), before);
        List<Object> parts = new ArrayList<>();
        boolean isSource = plan.children().isEmpty();
        parts.add(Catalyst.name(plan));
        parts.add(isSource ? Integer.valueOf(plan.canonicalized().hashCode()) : meanings.text(plan.expressions()));
        for (Object child : Catalyst.each(plan.children())) {
            parts.add(meanings.text(((LogicalPlan) child).output()));
        }
        String about = parts.toString();
        int place = 0;
        for (Object column : Catalyst.each(plan.output())) {
            meanings.ifNew((Attribute) column, about + (isSource ? ((Attribute) column).name() : String.valueOf(place)));
            place++;
        }
        before.add(ColumnMeanings.digest(about));
    }

    private void all(List<?> expressions, Set<String> before) {
        for (Object expression : expressions) {
            one((Expression) expression, before);
        }
    }

    private void one(Expression expression, Set<String> before) {
        if (!ExpressionSafety.cannotFail(expression)) {
            site(expression, before);
        }
    }

    private void site(Expression expression, Set<String> before) {
        sites.add(Arrays.asList(ColumnMeanings.digest(meanings.text(expression)), new ArrayList<Object>(before)));
    }
}
