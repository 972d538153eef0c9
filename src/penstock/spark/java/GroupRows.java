package penstock;

/** The rows of an old key group, each with its new group. */
abstract class GroupRows {
    /** Moves to the next row; returns false at the end. */
    abstract boolean next() throws Exception;

    /** Returns the new key group of the row. */
    abstract int group();

    abstract void close() throws Exception;
}
