package penstock;

import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.connect.service.SparkConnectService$;

import scala.Option;

/** Spark's Connect server in the driver, with {@link ClientWatch} in it. */
public final class ConnectServer {
    private static final String INTERCEPTORS = "spark.connect.grpc.interceptor.classes";

    /** Starts the server; returns its port. Spark finds the watch by its name, through the thread's class loader. */
    public int start(SparkContext context) {
        SparkConf conf = context.conf();
        String given = conf.get(INTERCEPTORS, "");
        conf.set(INTERCEPTORS, given.isEmpty() ? ClientWatch.class.getName() : given + "," + ClientWatch.class.getName());
        Thread thread = Thread.currentThread();
        ClassLoader before = thread.getContextClassLoader();
        thread.setContextClassLoader(ClientWatch.class.getClassLoader());
        try {
            SparkConnectService$.MODULE$.start(context);
        } finally {
            thread.setContextClassLoader(before);
            if (given.isEmpty()) {
                conf.remove(INTERCEPTORS);
            } else {
                conf.set(INTERCEPTORS, given);
            }
        }
        return SparkConnectService$.MODULE$.localPort();
    }

    /** Stops the server; queries that run are interrupted. */
    public void stop() {
        SparkConnectService$.MODULE$.stop(Option.empty(), Option.empty());
    }
}
