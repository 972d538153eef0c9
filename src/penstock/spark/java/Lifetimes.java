package penstock;

import java.lang.ref.Reference;
import java.lang.ref.ReferenceQueue;
import java.lang.ref.WeakReference;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

import scala.Option;

/** Reports which of the watched objects are garbage-collected: no plan refers to them any more. */
public final class Lifetimes {
    private final ReferenceQueue<Object> collected = new ReferenceQueue<>();
    private final Set<Object> watched = ConcurrentHashMap.newKeySet();

    private static final class Watched extends WeakReference<Object> {
        final long key;

        Watched(Object object, ReferenceQueue<Object> collected, long key) {
            super(object, collected);
            this.key = key;
        }
    }

    /**
     * Watches an object, or the value of an option. Copies of a plan share the object, including boxed numbers, which
     * Catalyst never unboxes.
     *
     * @return the keys of the objects collected since the last call, separated by spaces
     */
    public String watch(Object object, long key) {
        watched.add(new Watched(object instanceof Option ? ((Option<?>) object).get() : object, collected, key));
        StringBuilder keys = new StringBuilder();
        for (Reference<?> reference = collected.poll(); reference != null; reference = collected.poll()) {
            watched.remove(reference);
            keys.append(keys.length() == 0 ? "" : " ").append(((Watched) reference).key);
        }
        return keys.toString();
    }
}
