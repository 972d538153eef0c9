package penstock;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.ArrayList;
import java.util.List;

import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.rpc.RpcEndpointRef;
import org.apache.spark.rpc.RpcEnv;
import org.apache.spark.util.RpcUtils;

/**
 * Spark's own messages between the executors and the driver.
 *
 * SparkEnv is asked by method handles. Janino would look through all its methods, and some have types (of protobuf) that
 * Spark does not ship.
 */
final class Messages {
    private Messages() {
    }

    /** Returns what sends and takes messages in this process. */
    static RpcEnv here() {
        return (RpcEnv) ask("rpcEnv", RpcEnv.class);
    }

    /** Returns an endpoint of the driver by its name. */
    static RpcEndpointRef toDriver(String name) {
        return RpcUtils.makeDriverRef(name, (SparkConf) ask("conf", SparkConf.class), here());
    }

    private static Object ask(String method, Class<?> type) {
        try {
            MethodHandles.Lookup lookup = MethodHandles.publicLookup();
            List<Object> nothing = new ArrayList<>();
            MethodType given = MethodType.methodType(SparkEnv.class);
            List<Object> env = new ArrayList<>();
            env.add(lookup.findStatic(SparkEnv.class, "get", given).invokeWithArguments(nothing));
            return lookup.findVirtual(SparkEnv.class, method, MethodType.methodType(type)).invokeWithArguments(env);
        } catch (Throwable error) {
            throw new IllegalStateException("Spark has no " + method + " in this process", error);
        }
    }
}
