package penstock.delegation;

import java.lang.reflect.Field;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import py4j.ClientServerConnection;
import py4j.GatewayServer;

/** Finds the Python thread for which a thread works: py4j has a connection and a thread for each thread of Python. */
final class PythonThreads {
    private static final Logger LOG = LoggerFactory.getLogger(PythonThreads.class);

    /** Fields of py4j, which has no public method; null in a release without them. */
    private static final Field CONNECTIONS = field(GatewayServer.class, "connections");
    private static final Field SERVED = field(ClientServerConnection.class, "jvmThread");

    private final GatewayServer server;

    PythonThreads(GatewayServer server) {
        this.server = server;
    }

    /** Returns Python's port of the connection that a thread serves; null if it serves none, or that is unknown. */
    Integer port(Thread thread) {
        if (CONNECTIONS == null || SERVED == null) {
            return null;
        }
        try {
            for (Object connection : (Iterable<?>) CONNECTIONS.get(server)) {
                if (connection instanceof ClientServerConnection && SERVED.get(connection) == thread) {
                    return ((ClientServerConnection) connection).getSocket().getPort();
                }
            }
        } catch (ReflectiveOperationException failed) {
            LOG.debug("Cannot determine the Python thread of a query", failed);
        } catch (RuntimeException failed) { // connections are closed meanwhile
            LOG.debug("Cannot determine the Python thread of a query", failed);
        }
        return null;
    }

    private static Field field(Class<?> owner, String name) {
        try {
            Field field = owner.getDeclaredField(name);
            field.setAccessible(true);
            return field;
        } catch (ReflectiveOperationException failed) { // another release of py4j
            LOG.debug("py4j has no field {}", name, failed);
        } catch (RuntimeException failed) { // the access is not allowed
            LOG.debug("The field {} of py4j is not accessible", name, failed);
        }
        return null;
    }
}
