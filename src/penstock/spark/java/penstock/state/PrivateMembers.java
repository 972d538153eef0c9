package penstock.state;

import java.lang.reflect.Method;

/** Calls methods of Spark that are not public, or whose parameters depend on the release. */
final class PrivateMembers {
    static Object call(Object target, String name, Object... arguments) throws ReflectiveOperationException {
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
