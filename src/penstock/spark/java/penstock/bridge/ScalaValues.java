package penstock.bridge;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Collections;

import org.apache.spark.api.python.PythonUtils;

import scala.Product;
import scala.collection.immutable.Seq;

/** Creates short sequences and copies of case class objects in a single call, where Python would need several. */
public final class ScalaValues {
    public Seq<Object> seq() {
        return PythonUtils.toSeq(Collections.emptyList());
    }

    public Seq<Object> seq(Object a) {
        return PythonUtils.toSeq(Arrays.asList(new Object[] {a}));
    }

    public Seq<Object> seq(Object a, Object b) {
        return PythonUtils.toSeq(Arrays.asList(new Object[] {a, b}));
    }

    public Seq<Object> seq(Object a, Object b, Object c) {
        return PythonUtils.toSeq(Arrays.asList(new Object[] {a, b, c}));
    }

    public Seq<Object> seq(Object a, Object b, Object c, Object d) {
        return PythonUtils.toSeq(Arrays.asList(new Object[] {a, b, c, d}));
    }

    /** Returns a copy of a case class object with new field values; values without a name are further arguments. */
    public Object copied(Product original, Seq<?> names, Seq<?> values)
            throws IllegalAccessException, InvocationTargetException {
        Object[] arguments = new Object[original.productArity() + values.size() - names.size()];
        for (int i = 0; i < original.productArity(); i++) {
            int index = names.indexOf(original.productElementName(i));
            arguments[i] = index < 0 ? original.productElement(i) : values.apply(index);
        }
        for (int i = names.size(); i < values.size(); i++) {
            arguments[original.productArity() + i - names.size()] = values.apply(i);
        }
        for (Method method : original.getClass().getMethods()) {
            if (method.getName().equals("copy") && method.getParameterCount() == arguments.length) {
                return method.invoke(original, arguments);
            }
        }
        throw new IllegalArgumentException("Cannot copy an object of " + original.getClass());
    }
}
