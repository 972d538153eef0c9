package penstock.bridge;

import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.connect.service.SparkConnectService$;

import scala.Option;

/** Spark's Connect server in the driver, with {@link ClientWatch} as an interceptor of its calls. */
public final class ConnectServer {
    private static final String INTERCEPTORS = "spark.connect.grpc.interceptor.classes";

    /** Starts the server; returns its port. Spark loads `ClientWatch` by name through the thread's class loader. */
    public int start(SparkContext context) {
        SparkConf conf = context.conf();
        String userValue = conf.get(INTERCEPTORS, "");
        conf.set(INTERCEPTORS, userValue.isEmpty() ? ClientWatch.class.getName() : userValue + "," + ClientWatch.class.getName());
        Thread thread = Thread.currentThread();
        ClassLoader previousLoader = thread.getContextClassLoader();
        thread.setContextClassLoader(ClientWatch.class.getClassLoader());
        try {
            SparkConnectService$.MODULE$.start(context);
        } finally {
            thread.setContextClassLoader(previousLoader);
            if (userValue.isEmpty()) {
                conf.remove(INTERCEPTORS);
            } else {
                conf.set(INTERCEPTORS, userValue);
            }
        }
        return SparkConnectService$.MODULE$.localPort();
    }

    /** Stops the server and interrupts running queries. */
    public void stop() {
        SparkConnectService$.MODULE$.stop(Option.empty(), Option.empty());
    }
}
