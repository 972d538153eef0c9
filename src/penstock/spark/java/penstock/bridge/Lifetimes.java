package penstock.bridge;

import java.lang.ref.Reference;
import java.lang.ref.ReferenceQueue;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

import scala.Option;

/** Reports the watched objects that have been garbage-collected: no plan refers to such an object any more. */
public final class Lifetimes {
    private final ReferenceQueue<Object> collected = new ReferenceQueue<>();
    private final Map<Object, Object> keys = new ConcurrentHashMap<>();

    /**
     * Watches an object, or the value of an option; returns the keys of the objects collected since the last call, separated
     * by spaces. Copies of a plan share the object, even a boxed number, as Catalyst never unboxes it.
     */
    public String watch(Object object, long key) {
        keys.put(new WeakReference<>(object instanceof Option ? ((Option<?>) object).get() : object, collected), key);
        List<String> collectedKeys = new ArrayList<>();
        for (Reference<?> reference = collected.poll(); reference != null; reference = collected.poll()) {
            collectedKeys.add(String.valueOf(keys.remove(reference)));
        }
        return String.join(" ", collectedKeys);
    }
}
