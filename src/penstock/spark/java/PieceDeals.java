package penstock;

import java.lang.ref.Cleaner;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.spark.rpc.RpcCallContext;
import org.apache.spark.rpc.RpcEndpoint;
import org.apache.spark.rpc.RpcEnv;

import scala.PartialFunction;
import scala.PartialFunction$;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * Deals pieces of exchanged rows out to the tasks that read them: who asks gets the next one. It lives in the driver.
 *
 * What a task was given is kept, and also that it was told to end. A task that runs again asks for the same pieces, so
 * it gives the same rows.
 *
 * Until all tasks have asked, none has more than an even share: Spark may run one alone, and a function may read all it
 * can get before it gives a row. Who has its share ends, and makes room for another. The last task to ask has no such
 * bound, so nothing is left over.
 */
final class PieceDeals implements RpcEndpoint {
    /** The answer to a task for which there is no piece any more. */
    static final int NONE = -1;

    private static final Cleaner CLEANER = Cleaner.create();
    private static PieceDeals current;

    /** By which tasks find it. */
    final String name = "penstock-pieces-" + UUID.randomUUID();
    private final RpcEnv rpcEnv;
    private final Map<Object, Object> deals = new ConcurrentHashMap<>();

    private PieceDeals(RpcEnv rpcEnv) {
        this.rpcEnv = rpcEnv;
    }

    /** Returns the one of a Spark application. */
    static synchronized PieceDeals of(RpcEnv rpcEnv) {
        if (current == null || current.rpcEnv != rpcEnv) {
            current = new PieceDeals(rpcEnv);
            rpcEnv.setupEndpoint(current.name, current);
        }
        return current;
    }

    @Override
    public RpcEnv rpcEnv() {
        return rpcEnv;
    }

    /** Begins to deal pieces out, by a name; it is forgotten once no plan has the rows any more. */
    void begin(Object rows, String deal, int pieces, int tasks) {
        deals.put(deal, new Deal(pieces, tasks));
        CLEANER.register(rows, new End(deals, deal));
    }

    @SuppressWarnings("unchecked") // the function is one of objects, as Janino makes no bridge methods
    @Override
    public PartialFunction<Object, BoxedUnit> receiveAndReply(RpcCallContext context) {
        Object answers = PartialFunction$.MODULE$.fromFunction(new Answer(context));
        return (PartialFunction<Object, BoxedUnit>) answers;
    }

    /** Answers a question: the deal, the task, and how many pieces it has had. */
    private final class Answer extends AbstractFunction1<Object, Object> {
        private final RpcCallContext context;

        Answer(RpcCallContext context) {
            this.context = context;
        }

        @Override
        public Object apply(Object question) {
            Object[] asked = (Object[]) question;
            Deal deal = (Deal) deals.get(asked[0]);
            if (deal == null) {
                context.sendFailure(new IllegalStateException("an exchange that the driver has forgotten"));
            } else {
                context.reply(deal.piece((Integer) asked[1], ((Integer) asked[2]).intValue()));
            }
            return BoxedUnit.UNIT;
        }
    }

    /** Forgets what was dealt out. */
    private static final class End implements Runnable {
        private final Map<Object, Object> deals;
        private final String deal;

        End(Map<Object, Object> deals, String deal) {
            this.deals = deals;
            this.deal = deal;
        }

        @Override
        public void run() {
            deals.remove(deal);
        }
    }

    /** The pieces of an exchange, and who has had them. */
    private static final class Deal {
        private final int pieces;
        private final int tasks;
        private final int share;
        private final Map<Object, Object> had = new HashMap<>();
        private int next;

        Deal(int pieces, int tasks) {
            this.pieces = pieces;
            this.tasks = tasks;
            share = (pieces + tasks - 1) / tasks;
        }

        /** Returns the piece of a task at a place of its own; two attempts of it may ask. */
        @SuppressWarnings("unchecked")
        synchronized Integer piece(Integer task, int place) {
            if (!had.containsKey(task)) {
                had.put(task, new ArrayList<Object>());
            }
            List<Object> own = (List<Object>) had.get(task);
            if (place == own.size()) {
                boolean isEnough = place >= share && had.size() < tasks;
                own.add(isEnough || next == pieces ? NONE : next++);
            }
            return (Integer) own.get(place);
        }
    }
}
