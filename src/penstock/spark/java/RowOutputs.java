package penstock;

/** Opens new key groups that are written row by row. */
interface RowOutputs {
    RowWriter output(int group) throws Exception;
}
