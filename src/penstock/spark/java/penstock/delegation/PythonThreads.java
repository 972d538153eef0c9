package penstock.delegation;

import java.lang.reflect.Field;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import py4j.ClientServerConnection;
import py4j.GatewayServer;

/** Finds the Python thread for which a thread works: py4j has a connection and a thread for each thread of Python. */
final class PythonThreads {
    private static final Logger LOG = LoggerFactory.getLogger(PythonThreads.class);

    private final GatewayServer server;

    PythonThreads(GatewayServer server) {
        this.server = server;
    }

    /** Returns Python's port of the connection that a thread serves; null if it serves none, or that is unknown. */
    Integer port(Thread thread) {
        try { // py4j has no public method
            Field connections = GatewayServer.class.getDeclaredField("connections");
            Field served = ClientServerConnection.class.getDeclaredField("jvmThread");
            connections.setAccessible(true);
            served.setAccessible(true);
            for (Object connection : (Iterable<?>) connections.get(server)) {
                if (connection instanceof ClientServerConnection && served.get(connection) == thread) {
                    return ((ClientServerConnection) connection).getSocket().getPort();
                }
            }
        } catch (ReflectiveOperationException failed) { // another release of py4j
            LOG.debug("Cannot determine the Python thread of a query", failed);
        }
        return null;
    }
}
