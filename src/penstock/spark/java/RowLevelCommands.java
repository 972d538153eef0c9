package penstock;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.RowLevelWrite;

/**
 * DELETE, UPDATE and MERGE. They report the number of changed rows to the table, which operators and expressions of their
 * own queries count, once per run of a task.
 */
final class RowLevelCommands {
    static final String REASON = "a query of DELETE, UPDATE or MERGE, which counts rows in its own operators";

    /** Prefixes of the classes that implement these commands for Delta tables with ordinary queries. */
    private static final String DELTA = "org.apache.spark.sql.delta.commands.";
    private static final String[] DELTA_COMMANDS = {DELTA + "DeleteCommand", DELTA + "UpdateCommand", DELTA + "MergeInto"};

    private RowLevelCommands() {
    }

    /** Whether a plan is such a command as rewritten by Spark, such as for Iceberg tables. */
    static boolean isRowLevel(LogicalPlan plan) {
        return plan instanceof RowLevelWrite;
    }

    /** Whether this thread is running such a command of Delta. */
    static boolean isRunning() {
        StackTraceElement[] calls = new Throwable().getStackTrace();
        for (int i = 0; i < calls.length; i++) {
            String name = calls[i].getClassName();
            if (name.startsWith(DELTA)) {
                for (int j = 0; j < DELTA_COMMANDS.length; j++) {
                    if (name.startsWith(DELTA_COMMANDS[j])) {
                        return true;
                    }
                }
            }
        }
        return false;
    }
}
