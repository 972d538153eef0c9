package penstock.duckdb.dialect;

/**
 * Translates regular expressions of Java to RE2, which DuckDB uses: the subset for which both find the same matches.
 *
 * Both take the leftmost match, and prefer alternatives and repetitions in the same order. Their classes, anchors and
 * line terminators differ, so those are written out, or `guarded` makes DuckDB fail for the texts that matter.
 */
public final class NativeRegex extends NativeRegexReader {
    /** Instead of the number of a group: no group captures. */
    public static final int NO_GROUPS = -1;
    /** Instead of the number of a group: all groups capture. */
    public static final int ALL_GROUPS = -2;
    private static final String TERMINATORS = "\\n\\r\\x{85}\\x{2028}\\x{2029}";
    private static final int MAX_REPETITIONS = 1000;

    private final int selectedGroup;
    private int groups;
    /** Whether nothing precedes the position in the pattern, and whether nothing may follow it. */
    private boolean isAtStart = true;
    private boolean isAtEnd;
    private boolean hasEnd;
    private boolean hasWordBoundary;
    private final boolean isNullable;

    /** @param selectedGroup the only group that captures (0 is the whole match), `NO_GROUPS` or `ALL_GROUPS` */
    public NativeRegex(String pattern, int selectedGroup) throws Declined {
        super(pattern);
        this.selectedGroup = selectedGroup;
        isNullable = alternatives();
        if (position < this.pattern.length()) {
            throw declined("an unmatched parenthesis");
        }
        if (selectedGroup > groups) {
            throw declined("a group that does not exist");
        }
    }

    /** Returns the pattern for RE2; a selected group is the first, as others do not capture. */
    public String sql() {
        return selectedGroup == 0 ? "(" + sql + ")" : sql.toString();
    }

    /** Returns SQL that fails for texts on which the matches may differ. */
    public String guarded(String value, String text) {
        String condition = hasWordBoundary ? "strlen(" + text + ") <> length(" + text + ")" : "";
        if (hasEnd) { // Java's $ also matches before a final line terminator
            condition += (hasWordBoundary ? " OR " : "") + "regexp_matches(" + text + ", '[" + TERMINATORS + "]\\z')";
        }
        return condition.isEmpty() ? value : "(CASE WHEN " + condition + " THEN error('a text that is matched differently') ELSE " + value + " END)";
    }

    /** Returns a replacement of Java in RE2's syntax. */
    public String replacement(String text) throws Declined {
        if (isNullable) { // after a match, Java also replaces the empty text that follows
            throw declined("a replacement of empty matches");
        }
        StringBuilder result = new StringBuilder();
        for (int i = 0; i < text.length(); i++) {
            char character = text.charAt(i);
            boolean isSpecial = character == '$' || character == '\\';
            if (isSpecial && i + 1 == text.length()) {
                throw declined("an incomplete replacement");
            }
            if (character == '$') {
                char digit = text.charAt(++i);
                if (digit < '0' || digit > '9' || digit - '0' > groups || groups > 9) {
                    throw declined("a replacement by a named or missing group");
                }
                result.append('\\').append(digit);
            } else {
                char literal = isSpecial ? text.charAt(++i) : character;
                result.append(literal == '\\' ? "\\\\" : String.valueOf(literal));
            }
        }
        return result.toString();
    }

    /** Translates alternatives up to the end or a closing parenthesis; returns whether they match the empty text. */
    private boolean alternatives() throws Declined {
        boolean isStart = isAtStart;
        boolean isNullableAlternative = sequence();
        boolean hasEndAnchor = isAtEnd;
        while (peek() == '|') {
            sql.append('|');
            position++;
            isAtStart = isStart;
            isAtEnd = false;
            isNullableAlternative |= sequence();
            hasEndAnchor |= isAtEnd;
        }
        isAtEnd = hasEndAnchor;
        return isNullableAlternative;
    }

    private boolean sequence() throws Declined {
        boolean isEmpty = true;
        while (position < pattern.length() && peek() != '|' && peek() != ')') {
            if (isAtEnd) {
                throw declined("something after the end of the text");
            }
            int groupsBefore = groups;
            boolean isNullableAtom = atom();
            isAtStart = false;
            isEmpty &= quantified(isNullableAtom, groups > groupsBefore);
        }
        return isEmpty;
    }

    /** Translates an atom; returns whether it matches the empty text. */
    private boolean atom() throws Declined {
        int character = next();
        switch (character) {
            case '(':
                return group();
            case '[':
                characterClass();
                return false;
            case '.':
                sql.append("[^").append(TERMINATORS).append(']');
                return false;
            case '^':
                return start();
            case '$':
                return end(true);
            case '\\':
                return escape();
            case '*': case '+': case '?': case '{':
                throw declined("a repetition of nothing");
            default:
                literal(character);
                return false;
        }
    }

    private boolean start() throws Declined {
        if (!isAtStart) { // RE2 finds wrong matches of x^
            throw declined("something before the start of the text");
        }
        sql.append("\\A");
        return true;
    }

    private boolean end(boolean isBeforeTerminator) {
        isAtEnd = true;
        hasEnd |= isBeforeTerminator;
        sql.append("\\z");
        return true;
    }

    private boolean group() throws Declined {
        boolean isCapturing = true;
        if (peek() == '?') {
            if (!pattern.startsWith("?:", position)) {
                throw declined("look-around, flags, or named groups");
            }
            position += 2;
            isCapturing = false;
        }
        if (isCapturing) {
            groups++;
        }
        sql.append(isCapturing && (selectedGroup == ALL_GROUPS || selectedGroup == groups) ? "(" : "(?:");
        int start = sql.length();
        boolean isNullableGroup = alternatives();
        if (sql.length() == start) { // DuckDB's rewrite of patterns to LIKE drops the rest of the pattern
            throw declined("an empty group");
        }
        if (peek() != ')') {
            throw declined("an unmatched parenthesis");
        }
        position++;
        sql.append(')');
        return isNullableGroup;
    }

    /** Translates the repetition of an atom, if there is one; returns whether it may be empty. */
    private boolean quantified(boolean isNullableAtom, boolean hasGroup) throws Declined {
        int start = position;
        boolean isOptional = peek() == '?';
        boolean mayBeEmpty = peek() == '*' || peek() == '?';
        if (peek() == '{') {
            int end = pattern.indexOf('}', position);
            String bounds = end < 0 ? "" : pattern.substring(position + 1, end);
            if (!bounds.matches("\\d{1,4}(,(\\d{1,4})?)?")) {
                throw declined("a repetition that is not a number");
            }
            for (String bound : bounds.split(",")) {
                if (Integer.parseInt(bound) > MAX_REPETITIONS) {
                    throw declined("more than " + MAX_REPETITIONS + " repetitions");
                }
            }
            mayBeEmpty = Integer.parseInt(bounds.split(",")[0]) == 0;
            position = end + 1;
        } else if (mayBeEmpty || peek() == '+') {
            position++;
        } else {
            return isNullableAtom;
        }
        if (peek() == '?') { // lazy
            position++;
        }
        if (isNullableAtom) {
            throw declined("a repetition of something that may be empty");
        }
        if (hasGroup && !isOptional && (selectedGroup > 0 || selectedGroup == ALL_GROUPS)) { // which repetition a group captures may differ
            throw declined("a repeated group");
        }
        if (peek() == '+' || peek() == '*' || peek() == '?' || peek() == '{') {
            throw declined("a possessive repetition");
        }
        sql.append(pattern, start, position);
        return mayBeEmpty;
    }

    /** Translates what follows a backslash outside of a class; returns whether it matches the empty text. */
    private boolean escape() throws Declined {
        int character = next();
        if (CLASSES.containsKey(text(character))) {
            sql.append('[').append(CLASSES.get(text(character))).append(']');
            return false;
        }
        if (character == 'A') {
            return start();
        }
        if (character == 'z' || character == 'Z') {
            return end(character == 'Z');
        }
        if (character == 'b' || character == 'B') {
            hasWordBoundary = true;
            sql.append('\\').append((char) character);
            return true;
        }
        literal(escaped(character));
        return false;
    }
}
