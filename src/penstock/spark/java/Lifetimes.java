package penstock;

import java.lang.ref.Reference;
import java.lang.ref.ReferenceQueue;
import java.lang.ref.WeakReference;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

import scala.Option;

/** Tells which of some objects are gone: no plan refers to them any more. */
public final class Lifetimes {
    private final ReferenceQueue<Object> gone = new ReferenceQueue<>();
    private final Set<Object> watched = ConcurrentHashMap.newKeySet();

    private static final class Watched extends WeakReference<Object> {
        final long key;

        Watched(Object thing, ReferenceQueue<Object> gone, long key) {
            super(thing, gone);
            this.key = key;
        }
    }

    /**
     * Watches an object, or what an option holds. Copies of a plan hold the same object: boxed numbers, too, which
     * Catalyst never unboxes.
     *
     * @return the keys of those that are gone since the last call, separated by spaces
     */
    public String watch(Object thing, long key) {
        watched.add(new Watched(thing instanceof Option ? ((Option<?>) thing).get() : thing, gone, key));
        StringBuilder keys = new StringBuilder();
        for (Reference<?> each = gone.poll(); each != null; each = gone.poll()) {
            watched.remove(each);
            keys.append(keys.length() == 0 ? "" : " ").append(((Watched) each).key);
        }
        return keys.toString();
    }
}
