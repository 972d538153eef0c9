package penstock;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.UUID;

import org.apache.spark.Dependency;
import org.apache.spark.NarrowDependency;
import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.rdd.RDD;
import org.apache.spark.rpc.RpcEndpointRef;

import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.reflect.ClassTag$;

/**
 * The rows of pieces, read by a number of tasks, each of which takes the next piece whenever it is free.
 *
 * A piece is a partition of another RDD. Every task may read every piece, so any executor will do for it.
 */
final class PieceRdd extends RDD<Object> {
    private static final long serialVersionUID = 1L;

    private final RDD<Object> rows;
    private final Partition[] pieces;
    private final int tasks;
    private final String driver;
    private final String deal = UUID.randomUUID().toString();
    /** How rows are sent to a Python worker that asks for them; null if tasks give them as they are. */
    private final PieceServer.Form form;

    PieceRdd(RDD<Object> rows, int tasks, PieceServer.Form form) {
        super(rows.sparkContext(), dependencies(rows), ClassTag$.MODULE$.apply(Object.class));
        this.rows = rows;
        this.pieces = rows.partitions();
        this.tasks = tasks;
        this.form = form;
        PieceDeals deals = PieceDeals.of(Messages.here());
        driver = deals.name;
        deals.begin(this, deal, pieces.length, tasks);
    }

    private static Seq<Dependency<?>> dependencies(RDD<Object> rows) {
        List<Dependency<?>> found = new ArrayList<>();
        found.add(new OnAny(rows));
        return PythonUtils.toSeq(found);
    }

    @Override
    public Partition[] getPartitions() {
        Partition[] found = new Partition[tasks];
        for (int i = 0; i < tasks; i++) {
            found[i] = new Task(i);
        }
        return found;
    }

    @Override
    public Iterator<Object> compute(Partition split, TaskContext context) {
        Pieces taken = new Pieces(split.index(), context);
        if (form == null) {
            return taken;
        }
        try {
            return PieceServer.start(taken, form, context);
        } catch (IOException error) {
            throw new IllegalStateException("no rows can be sent to the Python worker", error);
        }
    }

    /** The rows of the pieces that a task takes. */
    final class Pieces extends AbstractIterator<Object> {
        private final int task;
        private final TaskContext context;
        private final RpcEndpointRef deals;
        private Iterator<Object> piece;
        private int had;
        private boolean isEnd;

        Pieces(int task, TaskContext context) {
            this.task = task;
            this.context = context;
            deals = Messages.toDriver(driver);
        }

        /** Whether the piece that is being read has a row left. */
        boolean isWithinPiece() {
            return piece != null && !hasEnded() && piece.hasNext();
        }

        /** Whether the task has ended, or is to: then what a piece is read from is freed, maybe by another thread. */
        private boolean hasEnded() {
            return context.isCompleted() || context.isInterrupted();
        }

        @Override
        public boolean hasNext() {
            while (!isWithinPiece()) {
                if (isEnd || !take()) {
                    return false;
                }
            }
            return true;
        }

        /** Takes the next piece, if there is one. */
        private boolean take() {
            if (hasEnded()) {
                throw new IllegalStateException("the task has ended"); // it must not look like the end of the rows
            }
            Object[] question = {deal, task, had};
            Object answer = deals.askSync(question, ClassTag$.MODULE$.apply(Object.class));
            int number = ((Integer) answer).intValue();
            isEnd = number == PieceDeals.NONE;
            if (!isEnd) {
                had++;
                piece = rows.iterator(pieces[number], context);
            }
            return !isEnd;
        }

        @Override
        public Object next() {
            return piece.next();
        }
    }

    /** A task of the RDD. */
    private static final class Task implements Partition {
        private static final long serialVersionUID = 1L;
        private final int index;

        Task(int index) {
            this.index = index;
        }

        @Override
        public int index() {
            return index;
        }

        /** Scala's compiler asks for it, and hides that from Java's. */
        public boolean org$apache$spark$Partition$$super$equals(Object other) {
            return this == other;
        }
    }

    /** Every task may read every piece. Spark asks only where they lie, and would send all tasks to where one does. */
    private static final class OnAny extends NarrowDependency<Object> {
        private static final long serialVersionUID = 1L;

        OnAny(RDD<Object> rows) {
            super(rows);
        }

        @Override
        public Seq<Object> getParents(int task) {
            return PythonUtils.toSeq(Collections.emptyList());
        }
    }
}
