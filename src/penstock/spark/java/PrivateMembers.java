package penstock;

import java.lang.reflect.Method;

/** Calls methods of Spark that are not public. */
final class PrivateMembers {
    private PrivateMembers() {
    }

    /** Calls a method without parameters, of an object's class or of one above it. */
    static Object get(Object thing, String name) throws ReflectiveOperationException {
        for (Class<?> type = thing.getClass(); type != null; type = type.getSuperclass()) {
            for (Method method : type.getDeclaredMethods()) {
                if (method.getName().equals(name) && method.getParameterCount() == 0) {
                    method.setAccessible(true);
                    return method.invoke(thing, new Object[0]);
                }
            }
        }
        throw new NoSuchMethodException(thing.getClass().getName() + "." + name);
    }

    /** Calls a method with one number. */
    static void set(Object thing, String name, long value) throws ReflectiveOperationException {
        Method method = thing.getClass().getDeclaredMethod(name, new Class<?>[] {Long.TYPE});
        method.setAccessible(true);
        method.invoke(thing, new Object[] {value});
    }
}
