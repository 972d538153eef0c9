package penstock;

import java.lang.reflect.Method;

/** Calls methods of Spark that are not public, or that have other parameters in other releases. */
final class PrivateMembers {
    private PrivateMembers() {
    }

    /** Calls a method without parameters. */
    static Object get(Object thing, String name) throws ReflectiveOperationException {
        return call(thing, name, new Object[0]);
    }

    /** Calls a method with one number. */
    static void set(Object thing, String name, long value) throws ReflectiveOperationException {
        call(thing, name, new Object[] {Long.valueOf(value)});
    }

    static Object call(Object thing, String name, Object[] arguments) throws ReflectiveOperationException {
        return find(thing, name, arguments.length).invoke(thing, arguments);
    }

    /** Returns a method of an object's class or of one above it; Scala puts the class in front of some names. */
    static Method find(Object thing, String name, int parameters) throws NoSuchMethodException {
        for (Class<?> type = thing.getClass(); type != null; type = type.getSuperclass()) {
            for (Method method : type.getDeclaredMethods()) {
                boolean named = method.getName().equals(name) || method.getName().endsWith("$$" + name);
                if (named && method.getParameterCount() == parameters) {
                    method.setAccessible(true);
                    return method;
                }
            }
        }
        throw new NoSuchMethodException(thing.getClass().getName() + "." + name);
    }
}
