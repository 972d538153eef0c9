"""The scalar expressions that DuckDB computes, as data: `NativeTemplates.java` looks them up."""
