package penstock;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;

/**
 * The answer to a call from Python: facts as text in chunks, and the objects that the facts describe.
 *
 * An answer of only a short text is returned as a string, which saves the calls for its chunks. Python reads both forms
 * with `answers`.
 */
public final class Answer {
    /** Characters per chunk. Longer texts wait 40 ms in Python: their rest is sent only after an acknowledgement. */
    private static final int CHUNK_CHARACTERS = 4000;

    private static final ObjectMapper JSON = new ObjectMapper();

    private final List<Object> chunks;
    private final List<?> handles;

    private Answer(String text, List<?> handles) {
        this.chunks = split(text);
        this.handles = handles;
    }

    /** Returns an answer of facts without objects. */
    static Object of(Object facts) throws JsonProcessingException {
        return ofText(JSON.writeValueAsString(facts));
    }

    /** Returns an answer that is a text, not necessarily JSON. */
    static Object ofText(String text) {
        return text.length() <= CHUNK_CHARACTERS ? text : new Answer(text, Collections.emptyList());
    }

    /** Returns an answer of facts and the objects that they describe. */
    static Answer of(Object facts, List<?> handles) throws JsonProcessingException {
        return new Answer(JSON.writeValueAsString(facts), handles);
    }

    /** Returns the number of chunks of the text. */
    public int chunks() {
        return chunks.size();
    }

    /** Returns a chunk of the text. */
    public Object chunk(int index) {
        return chunks.get(index);
    }

    /** Returns an object by its index. */
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
