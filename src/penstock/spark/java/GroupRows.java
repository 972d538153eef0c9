package penstock;

/** The rows of an old key group; each belongs to a new one. */
abstract class GroupRows {
    /** Goes to the next row, and returns whether there is one. */
    abstract boolean next() throws Exception;

    /** Returns the new key group of the row. */
    abstract int group();

    abstract void close() throws Exception;
}
