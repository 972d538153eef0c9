package penstock;

import java.lang.reflect.Method;

/** Calls methods of Spark that are not public, or whose parameters depend on the release. */
final class PrivateMembers {
    private PrivateMembers() {
    }

    /** Calls a method without parameters. */
    static Object get(Object target, String name) throws ReflectiveOperationException {
        return call(target, name, new Object[0]);
    }

    /** Calls a method with a number. */
    static void set(Object target, String name, long value) throws ReflectiveOperationException {
        call(target, name, new Object[] {Long.valueOf(value)});
    }

    static Object call(Object target, String name, Object[] arguments) throws ReflectiveOperationException {
        return find(target, name, arguments.length).invoke(target, arguments);
    }

    /** Returns a method of an object's class or superclass; Scala prefixes some names with the class. */
    static Method find(Object target, String name, int parameters) throws NoSuchMethodException {
        for (Class<?> type = target.getClass(); type != null; type = type.getSuperclass()) {
            for (Method method : type.getDeclaredMethods()) {
                boolean hasName = method.getName().equals(name) || method.getName().endsWith("$$" + name);
                if (hasName && method.getParameterCount() == parameters) {
                    method.setAccessible(true);
                    return method;
                }
            }
        }
        throw new NoSuchMethodException(target.getClass().getName() + "." + name);
    }
}
