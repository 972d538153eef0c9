package penstock;

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
 * Gives a task's rows to its Python worker, a batch whenever the worker asks for one; see `rebalance.pulled`.
 *
 * Spark itself feeds a worker ahead, as much as the socket takes. A slow task would hold megabytes of rows that others
 * could have taken.
 */
final class PieceServer implements Runnable, TaskCompletionListener {
    private static final int ASKED = 'n';
    private static final int BATCH = 'b';
    private static final int END = 'e';
    private static final int FAILED = 'x';
    private static final int SECRET_BYTES = 32;
    private static final int PATIENCE_MILLIS = 60_000;
    /** Who connects tells the secret at once. */
    private static final int SECRET_MILLIS = 5_000;

    private final PieceRdd.Pieces rows;
    private final Form form;
    private final TaskContext context;
    private final byte[] secret = new byte[SECRET_BYTES];
    private final ServerSocket listener;
    private final ArrowWriter columns;
    private final Thread thread;
    private volatile Socket connection;
    private volatile boolean hasEnded;

    private PieceServer(PieceRdd.Pieces rows, Form form, TaskContext context) throws IOException {
        this.rows = rows;
        this.form = form;
        this.context = context;
        new SecureRandom().nextBytes(secret);
        columns = ArrowWriter.create(form.schema, form.timeZone, true, form.largeTypes); // may find a type unfit
        listener = listening(columns);
        thread = new Thread(this, "penstock-pieces");
        thread.setDaemon(true);
    }

    private static ServerSocket listening(ArrowWriter columns) throws IOException {
        try {
            return new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
        } catch (IOException error) {
            close(columns.root());
            throw error;
        }
    }

    /** Begins to serve; returns one row that says where, and what a worker must know. */
    static Iterator<Object> start(PieceRdd.Pieces rows, Form form, TaskContext context) throws IOException {
        PieceServer server = new PieceServer(rows, form, context);
        context.addTaskCompletionListener(server);
        server.thread.start();
        UTF8String host = UTF8String.fromString(server.listener.getInetAddress().getHostAddress());
        Object ticket = new GenericInternalRow(new Object[] {host, server.listener.getLocalPort(), server.secret});
        return CollectionConverters.asScala(Collections.singletonList(ticket).iterator());
    }

    @Override
    public void run() {
        TaskContext$.MODULE$.setTaskContext(context); // a piece that is lost must be told of to this task
        try {
            serve();
        } catch (Throwable gone) { // the worker has ended, or the task: both are told of elsewhere
            hasEnded = true; // nothing may leave the thread: Spark would end the executor
        }
        close(listener);
        close(connection);
        close(columns.root());
        TaskContext$.MODULE$.unset();
    }

    private static void close(AutoCloseable thing) {
        try {
            if (thing != null) {
                thing.close();
            }
        } catch (Exception ignored) {
            return; // it is closed
        }
    }

    private void serve() throws IOException {
        Socket socket = accepted();
        InputStream in = socket.getInputStream();
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(socket.getOutputStream()));
        // It is never closed: that would write once more, to a worker that may be gone. It has no memory of its own.
        ArrowStreamWriter batches = new ArrowStreamWriter(columns.root(), null, Channels.newChannel(out));
        batches.start();
        out.flush();
        boolean isMore = true;
        while (isMore && in.read() == ASKED) {
            isMore = give(batches, out);
            out.flush();
        }
    }

    /** Gives a batch, or says that there is none, or why there cannot be one; returns whether to go on. */
    private boolean give(ArrowStreamWriter batches, DataOutputStream out) throws IOException {
        int count = 0;
        try {
            boolean isNext = rows.hasNext();
            while (isNext) {
                columns.write((InternalRow) rows.next());
                count++;
                // No batch spans two pieces: the next one may be somebody else's.
                isNext = count < form.mostRows && rows.isWithinPiece() && hasRoom();
            }
            columns.finish();
        } catch (Throwable error) { // Spark throws what is not declared, and an error of its own where memory is short
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
        batches.writeBatch();
        columns.reset();
        return true;
    }

    /** Whether the batch may have another row, as in Spark's own batches. */
    private boolean hasRoom() {
        return columns.sizeInBytes() < form.mostBytes;
    }

    /** Returns the connection of the one that knows the secret; a worker may take minutes to start. */
    private Socket accepted() throws IOException {
        Socket socket = listener.accept();
        while (!knowsSecret(socket)) {
            close(socket);
            socket = listener.accept();
        }
        close(listener);
        return socket;
    }

    private boolean knowsSecret(Socket socket) {
        connection = socket; // so that the end of the task closes it
        if (hasEnded) {
            return false;
        }
        try {
            socket.setTcpNoDelay(true);
            socket.setSoTimeout(SECRET_MILLIS);
            boolean isKnown = MessageDigest.isEqual(secret, socket.getInputStream().readNBytes(SECRET_BYTES));
            socket.setSoTimeout(0);
            return isKnown;
        } catch (IOException silent) {
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
            thread.join(PATIENCE_MILLIS); // what it reads belongs to the task
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** How rows become columns. */
    static final class Form implements Serializable {
        private static final long serialVersionUID = 1L;
        final StructType schema;
        final String timeZone;
        final boolean largeTypes;
        final int mostRows;
        final long mostBytes;

        Form(StructType schema, String timeZone, boolean largeTypes, int mostRows, long mostBytes) {
            this.schema = schema;
            this.timeZone = timeZone;
            this.largeTypes = largeTypes;
            this.mostRows = mostRows;
            this.mostBytes = mostBytes;
        }
    }
}
