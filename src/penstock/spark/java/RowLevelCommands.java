package penstock;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.RowLevelWrite;

/**
 * DELETE, UPDATE and MERGE. They tell the table how many rows they changed, and count these in operators and expressions
 * of their own queries, once for each time that a task runs.
 */
final class RowLevelCommands {
    static final String WHY = "a query of DELETE, UPDATE or MERGE, which counts rows in its own operators";

    /** How the names begin of the classes that carry these commands out for Delta's tables, by queries like any others. */
    private static final String DELTA = "org.apache.spark.sql.delta.commands.";
    private static final String[] COMMANDS_OF_DELTA = {DELTA + "DeleteCommand", DELTA + "UpdateCommand", DELTA + "MergeInto"};

    private RowLevelCommands() {
    }

    /** Whether a plan is such a command as Spark has rewritten it, for Iceberg's tables among others. */
    static boolean isOne(LogicalPlan plan) {
        return plan instanceof RowLevelWrite;
    }

    /** Whether this thread carries one out. */
    static boolean isRunning() {
        StackTraceElement[] calls = new Throwable().getStackTrace();
        for (int i = 0; i < calls.length; i++) {
            String name = calls[i].getClassName();
            if (name.startsWith(DELTA)) {
                for (int j = 0; j < COMMANDS_OF_DELTA.length; j++) {
                    if (name.startsWith(COMMANDS_OF_DELTA[j])) {
                        return true;
                    }
                }
            }
        }
        return false;
    }
}
