package penstock.plans;

import org.apache.spark.sql.execution.CommandResultExec;
import org.apache.spark.sql.execution.SparkPlan;

import scala.collection.Iterator;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/**
 * An operator of Penstock in a physical plan, equal only to itself; without children unless a subclass overrides them.
 *
 * Spark copies an operator by calling its public constructor with `elements`, which must be the arguments of that
 * constructor.
 */
public abstract class PenstockOperator extends SparkPlan {
    private static final long serialVersionUID = 1L;

    private final transient Object[] elements;

    protected PenstockOperator(Object[] elements) {
        this.elements = elements;
    }

    /**
     * Replaces the node when an operator above, such as a limit, is serialized for tasks with its children: executors do not
     * have this class. Protected, as Janino compiles a private method to a static function.
     */
    protected Object writeReplace() {
        return new CommandResultExec(output(), null, null);
    }

    @Override
    public Seq<SparkPlan> children() {
        return Catalyst.emptySeq();
    }

    @Override
    public SparkPlan withNewChildrenInternal(IndexedSeq<SparkPlan> children) {
        return this;
    }

    /** Shows no constructor arguments. */
    @Override
    public Iterator<Object> stringArgs() {
        return Catalyst.<Object>emptySeq().iterator();
    }

    @Override
    public int productArity() {
        return elements.length;
    }

    @Override
    public Object productElement(int index) {
        return elements[index];
    }

    @Override
    public boolean canEqual(Object other) {
        return getClass().isInstance(other);
    }

    @Override
    public int hashCode() {
        return System.identityHashCode(this);
    }
}
