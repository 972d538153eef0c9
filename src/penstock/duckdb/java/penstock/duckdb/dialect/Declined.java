package penstock.duckdb.dialect;

/** Thrown if an expression or plan is not supported, with the reason. */
public final class Declined extends Exception {
    private static final long serialVersionUID = 1L;

    public Declined(String reason) {
        super(reason);
    }
}
