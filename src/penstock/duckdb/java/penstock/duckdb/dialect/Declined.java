package penstock.duckdb.dialect;

import penstock.plans.Catalyst;

/** Thrown if an expression or plan is not supported, with the reason. */
public final class Declined extends Exception {
    private static final long serialVersionUID = 1L;

    public Declined(String reason) {
        super(reason);
    }

    /** Returns the exception for an operator that is not supported. */
    public static Declined operator(Object operator) {
        String name = Catalyst.name(operator);
        boolean isPython = name.contains("Python") || name.contains("Arrow") || name.contains("Pandas");
        return new Declined((isPython ? "a Python function, " : "") + "operator " + name);
    }
}
