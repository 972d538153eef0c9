package penstock.bridge;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.Collections;

import org.apache.spark.SparkEnv;

/** Access to the SparkEnv of this process. */
public final class SparkEnvironment {
    private SparkEnvironment() {
    }

    /**
     * Calls a method of SparkEnv through method handles: Janino would resolve all of its methods, and some have protobuf
     * types that Spark does not ship.
     */
    public static Object get(String method, Class<?> type) {
        try {
            MethodHandles.Lookup lookup = MethodHandles.publicLookup();
            MethodType getter = MethodType.methodType(SparkEnv.class);
            Object env = lookup.findStatic(SparkEnv.class, "get", getter).invokeWithArguments(Collections.emptyList());
            return lookup.findVirtual(SparkEnv.class, method, MethodType.methodType(type)).invokeWithArguments(Collections.singletonList(env));
        } catch (Throwable error) {
            throw new IllegalStateException("SparkEnv has no " + method + " in this process", error);
        }
    }
}
