package penstock.chunks;

import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.Serializable;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.channels.Channels;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.util.Collections;

import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskContext$;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.execution.arrow.ArrowWriter;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.util.TaskCompletionListener;

import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Serves a task's rows to its Python worker, a batch per request; see `rebalance.pull_task`.
 *
 * Spark itself would send rows until the socket's buffer is full. A slow task would receive megabytes of rows that other
 * tasks could process.
 */
final class ChunkServer implements Runnable, TaskCompletionListener {
    private static final int REQUEST = 'n'; // from the worker; the other codes begin a reply
    private static final int BATCH = 'b';
    private static final int END = 'e';
    private static final int FAILED = 'x';
    private static final int SECRET_BYTES = 32;
    /** Maximum time for which the end of a task waits for the serving thread. */
    private static final int JOIN_MILLIS = 60_000;
    /** Timeout for the secret, which a worker sends as soon as it has connected. */
    private static final int SECRET_TIMEOUT_MILLIS = 5_000;

    private final ChunkRdd.Chunks rows;
    private final Format format;
    private final TaskContext context;
    private final byte[] secret = new byte[SECRET_BYTES];
    private final ServerSocket listener;
    private final ArrowWriter rowWriter;
    private final Thread thread;
    private volatile Socket connection;
    private volatile boolean hasEnded;

    private ChunkServer(ChunkRdd.Chunks rows, Format format, TaskContext context) throws IOException {
        this.rows = rows;
        this.format = format;
        this.context = context;
        new SecureRandom().nextBytes(secret);
        rowWriter = ArrowWriter.create(format.schema, format.timeZone, true, format.largeTypes); // fails for unsupported types
        try {
            listener = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
        } catch (IOException error) {
            close(rowWriter.root());
            throw error;
        }
        thread = new Thread(this, "penstock-chunks");
        thread.setDaemon(true);
    }

    /** Starts serving; returns a single row with host, port and secret. */
    static Iterator<Object> start(ChunkRdd.Chunks rows, Format format, TaskContext context) throws IOException {
        ChunkServer server = new ChunkServer(rows, format, context);
        context.addTaskCompletionListener(server);
        server.thread.start();
        UTF8String host = UTF8String.fromString(server.listener.getInetAddress().getHostAddress());
        Object ticket = new GenericInternalRow(new Object[] {host, server.listener.getLocalPort(), server.secret});
        return CollectionConverters.asScala(Collections.singletonList(ticket).iterator());
    }

    @Override
    public void run() {
        TaskContext$.MODULE$.setTaskContext(context); // a fetch failure must be reported to this task
        try {
            serve();
        } catch (Throwable ignored) {
            // The worker or the task has ended, which Spark reports. An uncaught error would end the executor.
        }
        close(listener);
        close(connection);
        close(rowWriter.root());
        TaskContext$.MODULE$.unset();
    }

    private static void close(AutoCloseable resource) {
        try {
            if (resource != null) {
                resource.close();
            }
        } catch (Exception ignored) {
            return;
        }
    }

    private void serve() throws IOException {
        Socket socket = acceptWorker();
        InputStream in = socket.getInputStream();
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(socket.getOutputStream()));
        // Never closed: closing would write to a worker that may have ended. The writer has no memory to free.
        ArrowStreamWriter batchWriter = new ArrowStreamWriter(rowWriter.root(), null, Channels.newChannel(out));
        batchWriter.start();
        out.flush();
        boolean hasMore = true;
        while (hasMore && in.read() == REQUEST) {
            hasMore = sendBatch(batchWriter, out);
            out.flush();
        }
    }

    /** Sends a batch, the end of the rows, or an error; returns whether the worker may request another batch. */
    private boolean sendBatch(ArrowStreamWriter batchWriter, DataOutputStream out) throws IOException {
        int count = 0;
        try {
            boolean hasNext = rows.hasNext();
            while (hasNext) {
                rowWriter.write((InternalRow) rows.next());
                count++;
                // No batch spans two chunks: the next chunk may go to another task.
                hasNext = count < format.maxRows && rows.isWithinChunk() && rowWriter.sizeInBytes() < format.maxBytes;
            }
            rowWriter.finish();
        } catch (Throwable error) { // Spark throws undeclared exceptions, and an error of its own when out of memory
            byte[] text = error.toString().getBytes(StandardCharsets.UTF_8);
            out.write(FAILED);
            out.writeInt(text.length);
            out.write(text);
            return false;
        }
        if (count == 0) {
            out.write(END);
            return false;
        }
        out.write(BATCH);
        batchWriter.writeBatch();
        rowWriter.reset();
        return true;
    }

    /** Returns the first connection that sends the secret. No timeout: a worker may take minutes to start. */
    private Socket acceptWorker() throws IOException {
        Socket socket = listener.accept();
        while (!knowsSecret(socket)) {
            close(socket);
            socket = listener.accept();
        }
        close(listener);
        return socket;
    }

    private boolean knowsSecret(Socket socket) {
        connection = socket; // so that the end of the task closes the socket
        if (hasEnded) {
            return false;
        }
        try {
            socket.setTcpNoDelay(true);
            socket.setSoTimeout(SECRET_TIMEOUT_MILLIS);
            boolean isCorrect = MessageDigest.isEqual(secret, socket.getInputStream().readNBytes(SECRET_BYTES));
            socket.setSoTimeout(0);
            return isCorrect;
        } catch (IOException ignored) {
            return false;
        }
    }

    @Override
    public void onTaskCompletion(TaskContext ended) {
        hasEnded = true;
        close(listener);
        close(connection);
        thread.interrupt();
        try {
            thread.join(JOIN_MILLIS); // the thread reads memory that Spark frees after the task
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** How rows are sent to a Python worker: their columns, and the limits of a batch. */
    static final class Format implements Serializable {
        private static final long serialVersionUID = 1L;
        final StructType schema;
        final String timeZone;
        final boolean largeTypes;
        final int maxRows;
        final long maxBytes;

        Format(StructType schema, String timeZone, boolean largeTypes, int maxRows, long maxBytes) {
            this.schema = schema;
            this.timeZone = timeZone;
            this.largeTypes = largeTypes;
            this.maxRows = maxRows;
            this.maxBytes = maxBytes;
        }
    }
}
