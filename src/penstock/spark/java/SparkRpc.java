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
 * Spark's RPC between the executors and the driver.
 *
 * SparkEnv is called through method handles: Janino would resolve all of its methods, and some have protobuf types that
 * Spark does not ship.
 */
final class SparkRpc {
    private SparkRpc() {
    }

    /** Returns the RPC environment of this process. */
    static RpcEnv environment() {
        return (RpcEnv) ofSparkEnv("rpcEnv", RpcEnv.class);
    }

    /** Returns an endpoint of the driver by name. */
    static RpcEndpointRef toDriver(String name) {
        return RpcUtils.makeDriverRef(name, (SparkConf) ofSparkEnv("conf", SparkConf.class), environment());
    }

    private static Object ofSparkEnv(String method, Class<?> type) {
        try {
            MethodHandles.Lookup lookup = MethodHandles.publicLookup();
            List<Object> noArguments = new ArrayList<>();
            MethodType getter = MethodType.methodType(SparkEnv.class);
            List<Object> env = new ArrayList<>();
            env.add(lookup.findStatic(SparkEnv.class, "get", getter).invokeWithArguments(noArguments));
            return lookup.findVirtual(SparkEnv.class, method, MethodType.methodType(type)).invokeWithArguments(env);
        } catch (Throwable error) {
            throw new IllegalStateException("SparkEnv has no " + method + " in this process", error);
        }
    }
}
