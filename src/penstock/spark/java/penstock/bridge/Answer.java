package penstock.bridge;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;

/**
 * The answer to a call from Python: facts as text in chunks, and the objects that the facts describe.
 *
 * A short text without objects is returned as a string, which saves the calls for chunks. The Python module `answers`
 * reads both forms.
 */
public final class Answer {
    /** Characters per chunk. For a longer chunk, Python would wait 40 ms, as TCP delays its rest. */
    private static final int CHUNK_CHARACTERS = 4000;

    private static final ObjectMapper JSON = new ObjectMapper();

    private final List<Object> chunks;
    private final List<?> handles;

    private Answer(String text, List<?> handles) {
        this.chunks = split(text);
        this.handles = handles;
    }

    /** Returns an answer of facts without objects. */
    public static Object of(Object facts) throws JsonProcessingException {
        return ofText(JSON.writeValueAsString(facts));
    }

    /** Returns an answer that is a text, not necessarily JSON. */
    public static Object ofText(String text) {
        return text.length() <= CHUNK_CHARACTERS ? text : new Answer(text, Collections.emptyList());
    }

    /** Returns an answer of facts and the objects that they describe. */
    public static Answer of(Object facts, List<?> handles) throws JsonProcessingException {
        return new Answer(JSON.writeValueAsString(facts), handles);
    }

    /** Returns a map of facts; `namesAndValues` are the name of a fact, its value, the next name, and so on. */
    public static Map<String, Object> facts(Object... namesAndValues) {
        Map<String, Object> facts = new HashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            facts.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        return facts;
    }

    public int chunks() {
        return chunks.size();
    }

    public Object chunk(int index) {
        return chunks.get(index);
    }

    public Object handle(int index) {
        return handles.get(index);
    }

    private static List<Object> split(String text) {
        List<Object> chunks = new ArrayList<>();
        for (int from = 0; from < text.length();) {
            int to = Math.min(from + CHUNK_CHARACTERS, text.length());
            if (Character.isHighSurrogate(text.charAt(to - 1))) { // never split a surrogate pair
                to--;
            }
            chunks.add(text.substring(from, to));
            from = to;
        }
        return chunks;
    }
}
