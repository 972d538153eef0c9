package penstock;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;

/**
 * What a question was answered: facts, as a text in pieces, and the objects that the facts are about.
 *
 * An answer of a short text alone is that text, which saves the calls for its pieces. Python reads both with `answers`.
 */
public final class Answer {
    /** Python would wait 40 ms for the rest of a longer text: it comes only when its first part was acknowledged. */
    private static final int PIECE = 4000;

    private static final ObjectMapper JSON = new ObjectMapper();

    private final List<Object> pieces;
    private final List<?> handles;

    private Answer(String text, List<?> handles) {
        this.pieces = cut(text);
        this.handles = handles;
    }

    /** Returns an answer of facts alone. */
    static Object of(Object facts) throws JsonProcessingException {
        return ofText(JSON.writeValueAsString(facts));
    }

    /** Returns an answer that is a text, which need not be JSON. */
    static Object ofText(String text) {
        return text.length() <= PIECE ? text : new Answer(text, Collections.emptyList());
    }

    /** Returns an answer of facts, and of the objects that they are about. */
    static Answer of(Object facts, List<?> handles) throws JsonProcessingException {
        return new Answer(JSON.writeValueAsString(facts), handles);
    }

    /** Returns how many pieces the text is in. */
    public int pieces() {
        return pieces.size();
    }

    /** Returns a piece of the text. */
    public Object piece(int place) {
        return pieces.get(place);
    }

    /** Returns one of the objects. */
    public Object handle(int place) {
        return handles.get(place);
    }

    private static List<Object> cut(String text) {
        List<Object> found = new ArrayList<>();
        for (int from = 0; from < text.length();) {
            int to = Math.min(from + PIECE, text.length());
            if (Character.isHighSurrogate(text.charAt(to - 1))) { // never cut one character in two
                to--;
            }
            found.add(text.substring(from, to));
            from = to;
        }
        return found;
    }
}
