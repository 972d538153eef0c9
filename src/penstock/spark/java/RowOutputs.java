package penstock;

/** Opens new key groups that are given row by row. */
interface RowOutputs {
    RowWriter output(int group) throws Exception;
}
