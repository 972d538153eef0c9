package org.apache.spark.sql.delta.commands;

import org.apache.spark.sql.Dataset;

/** Has the name of a class of Delta, and runs a query as that one does. */
public final class UpdateCommand {
    private UpdateCommand() {
    }

    /** Returns how many rows a query gives. */
    public static long count(Object df) {
        return ((Dataset<?>) df).count();
    }
}
