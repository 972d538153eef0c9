package penstock.exchange;

import java.nio.file.Files;
import java.nio.file.Paths;

import org.apache.spark.sql.execution.arrow.ArrowConverters$;
import org.apache.spark.sql.types.StructType;

/** Writes rows in the driver to a file, as an Arrow stream with a single batch. */
public final class ArrowFile {
    @SuppressWarnings({"rawtypes", "unchecked"}) // an iterator of objects: Janino generates no bridge methods
    public static void write(scala.collection.Iterator<?> rows, StructType schema, String path) throws Exception {
        ArrowConverters$ converters = ArrowConverters$.MODULE$;
        if (!rows.hasNext()) {
            Files.write(Paths.get(path), converters.createEmptyArrowBatch(schema, "UTC", false, false));
            return;
        }
        Object batches = converters.toBatchWithSchemaIterator((scala.collection.Iterator) rows, schema,
                Long.MAX_VALUE, Long.MAX_VALUE, "UTC", false, false);
        try {
            Object stream = ((scala.collection.Iterator<?>) batches).next();
            Files.write(Paths.get(path), (byte[]) stream);
        } finally {
            ((AutoCloseable) batches).close(); // outside of a task, nothing else frees its memory
        }
    }
}
