package penstock.bridge;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Collections;

import org.apache.spark.api.python.PythonUtils;

import scala.Product;
import scala.collection.immutable.Seq;

/** Creates in a single call what would take Python several: short sequences, and copies of case classes. */
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

    /** Returns a copy of a case class object with new fields; arguments of a second parameter list follow the values. */
    public Object copied(Product old, Seq<?> names, Seq<?> values)
            throws IllegalAccessException, InvocationTargetException {
        Object[] arguments = new Object[old.productArity() + values.size() - names.size()];
        for (int i = 0; i < old.productArity(); i++) {
            int index = names.indexOf(old.productElementName(i));
            arguments[i] = index < 0 ? old.productElement(i) : values.apply(index);
        }
        for (int i = names.size(); i < values.size(); i++) {
            arguments[old.productArity() + i - names.size()] = values.apply(i);
        }
        for (Method method : old.getClass().getMethods()) {
            if (method.getName().equals("copy") && method.getParameterCount() == arguments.length) {
                return method.invoke(old, arguments);
            }
        }
        throw new IllegalArgumentException("Cannot copy an object of " + old.getClass());
    }
}
