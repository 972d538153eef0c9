package penstock.duckdb.dialect;

import java.util.Locale;
import java.util.Map;

import penstock.plans.Catalyst;

/** Reads the characters and classes of a regular expression of Java, and writes them in RE2's syntax; see `NativeRegex`. */
class NativeRegexReader {
    /** The characters of a class, and all others; `\s` of Java includes the vertical tab. */
    static final Map<String, Object> CLASSES = Catalyst.pairs("d 0-9 w A-Za-z0-9_ s \\x09-\\x0d\\x20 D \\x00-/:-\\x{10FFFF} "
            + "W \\x00-/:-@\\[-\\^`{-\\x{10FFFF} S \\x00-\\x08\\x0e-\\x1f!-\\x{10FFFF}");
    private static final Map<String, Object> CONTROLS = Catalyst.pairs("t 9 n 10 f 12 r 13 a 7 e 27");
    final String pattern;
    final boolean ignoresCase;
    final StringBuilder sql = new StringBuilder();
    int position;

    NativeRegexReader(String pattern) {
        ignoresCase = pattern.startsWith("(?i)");
        this.pattern = ignoresCase ? pattern.substring(4) : pattern;
    }

    /** Returns the character that an escape stands for. */
    int escaped(int character) throws Declined {
        Object control = CONTROLS.get(text(character));
        if (control != null) {
            return Integer.parseInt((String) control);
        }
        if (character == 'x' || character == 'u') {
            int digits = character == 'x' ? 2 : 4;
            String code = pattern.substring(Math.min(position, pattern.length()), Math.min(position + digits, pattern.length()));
            if (!code.matches("[0-9A-Fa-f]{" + digits + "}") || code.toLowerCase(Locale.ROOT).matches("d[89a-f]..")) {
                throw declined("an unusual escape");
            }
            position += digits;
            return Integer.parseInt(code, 16);
        }
        if (character > 127 || Character.isLetterOrDigit(character)) {
            throw declined("the escape \\" + text(character));
        }
        return character;
    }

    void characterClass() throws Declined {
        sql.append('[');
        if (peek() == '^') {
            sql.append('^');
            position++;
        }
        if (peek() == ']') {
            throw declined("a class that begins with a bracket");
        }
        while (peek() != ']') {
            int first = member();
            if (first < 0) {
                if (peek() == '-') {
                    throw declined("a range of classes");
                }
                continue;
            }
            int last = first;
            if (peek() == '-' && !pattern.startsWith("-]", position)) {
                position++;
                last = member();
                if (last < first) {
                    throw declined("an unusual range");
                }
            }
            range(first, last);
            if (ignoresCase) { // Java ignores the case of ASCII letters only
                range(Math.max(first, 'a') - 32, Math.min(last, 'z') - 32);
                range(Math.max(first, 'A') + 32, Math.min(last, 'Z') + 32);
            }
        }
        position++;
        sql.append(']');
    }

    /** Returns the next character of a class; translates a nested class such as `\d`, and returns -1. */
    int member() throws Declined {
        int character = next();
        if (character == '[' || character == '&' && peek() == '&') {
            throw declined("a nested class");
        }
        if (character != '\\') {
            return character;
        }
        int escape = next();
        if (CLASSES.containsKey(text(escape))) {
            sql.append(CLASSES.get(text(escape)));
            return -1;
        }
        return escaped(escape);
    }

    void range(int first, int last) {
        if (first <= last) {
            sql.append(code(first)).append(first == last ? "" : "-" + code(last));
        }
    }

    void literal(int character) {
        boolean isLetter = character < 128 && Character.isLetter(character);
        if (ignoresCase && isLetter) {
            sql.append('[').append((char) (character | 32)).append((char) (character & ~32)).append(']');
        } else {
            sql.append(code(character));
        }
    }

    static String code(int character) {
        boolean isPlain = character > 159 && character < 0xD800 || character < 128 && Character.isLetterOrDigit(character);
        return isPlain ? text(character) : "\\x{" + Integer.toHexString(character) + "}";
    }

    static String text(int character) {
        return new String(Character.toChars(character));
    }

    int peek() {
        return position < pattern.length() ? pattern.codePointAt(position) : -1;
    }

    int next() throws Declined {
        int character = peek();
        if (character < 0) {
            throw declined("an unexpected end");
        }
        position += Character.charCount(character);
        return character;
    }

    static Declined declined(String reason) {
        return new Declined("a regular expression with " + reason);
    }
}
