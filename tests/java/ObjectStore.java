import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSExceptionMessages;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * A Hadoop file system over an S3 server that accepts unsigned requests, for tests. Like Hadoop's own file system for S3,
 * it renames by copying and deleting single objects, and a folder is a prefix of objects.
 *
 * `dieBefore` makes the JVM halt before its n-th change of an object.
 */
public final class ObjectStore extends FileSystem {
    private static final AtomicInteger CHANGES = new AtomicInteger();
    private static volatile int fatalChange;
    private static final Pattern ENTRY = Pattern.compile(
            "<Contents><Key>(.*?)</Key>.*?<Size>(\\d+)</Size>.*?<LastModified>(.*?)</LastModified>");
    private static final Pattern FOLDER = Pattern.compile("<CommonPrefixes><Prefix>(.*?)</Prefix>");
    private static final Pattern NEXT = Pattern.compile("<NextContinuationToken>(.*?)</NextContinuationToken>");

    private final HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    private URI uri;
    private String endpoint;
    private Path working;

    /** Halts the JVM before the n-th change from now on; 0 disables it. */
    public static void dieBefore(int change) {
        CHANGES.set(0);
        fatalChange = change;
    }

    /** Returns the number of changes since the last call of dieBefore. */
    public static int changes() {
        return CHANGES.get();
    }

    @Override
    public void initialize(URI name, Configuration conf) throws IOException {
        super.initialize(name, conf);
        setConf(conf);
        uri = URI.create(name.getScheme() + "://" + name.getAuthority());
        endpoint = conf.get("fs.weed.endpoint") + "/" + name.getAuthority() + "/";
        working = new Path(uri + "/");
    }

    @Override
    public String getScheme() {
        return "weed";
    }

    @Override
    public URI getUri() {
        return uri;
    }

    private String key(Path path) {
        String text = makeQualified(path).toUri().getPath();
        return text.startsWith("/") ? text.substring(1) : text;
    }

    private static String quoted(String key) {
        return URLEncoder.encode(key, StandardCharsets.UTF_8).replace("+", "%20").replace("%2F", "/");
    }

    private HttpResponse<byte[]> send(String method, String key, byte[] body, String... headers) throws IOException {
        if (!"GET".equals(method) && !"HEAD".equals(method) && CHANGES.incrementAndGet() == fatalChange) {
            Runtime.getRuntime().halt(137);
        }
        HttpRequest.BodyPublisher content = body == null ? HttpRequest.BodyPublishers.noBody()
                : HttpRequest.BodyPublishers.ofByteArray(body);
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(endpoint + key)).method(method, content);
        for (int i = 0; i < headers.length; i += 2) {
            request.header(headers[i], headers[i + 1]);
        }
        boolean interrupted = Thread.interrupted();
        try {
            HttpResponse<byte[]> response = client.send(request.build(), HttpResponse.BodyHandlers.ofByteArray());
            if (response.statusCode() >= 400 && response.statusCode() != 404) {
                throw new IOException(method + " " + key + ": " + response.statusCode() + " " + new String(response.body()));
            }
            return response;
        } catch (InterruptedException error) {
            interrupted = true;
            throw new java.io.InterruptedIOException(key);
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    @Override
    public FSDataInputStream open(Path path, int bufferSize) throws IOException {
        HttpResponse<byte[]> response = send("GET", quoted(key(path)), null);
        if (response.statusCode() == 404) {
            throw new FileNotFoundException(path.toString());
        }
        return new FSDataInputStream(new Bytes(response.body()));
    }

    private static final class Bytes extends FSInputStream {
        private final byte[] content;
        private int position;

        Bytes(byte[] content) {
            this.content = content;
        }

        @Override
        public int read() {
            return position < content.length ? content[position++] & 0xff : -1;
        }

        @Override
        public int read(byte[] target, int offset, int length) {
            if (length == 0) {
                return 0;
            }
            int count = Math.min(length, content.length - position);
            if (count <= 0) {
                return -1;
            }
            System.arraycopy(content, position, target, offset, count);
            position += count;
            return count;
        }

        @Override
        public int available() {
            return content.length - position;
        }

        @Override
        public void seek(long target) throws IOException {
            if (target < 0 || target > content.length) {
                throw new java.io.EOFException(FSExceptionMessages.CANNOT_SEEK_PAST_EOF);
            }
            position = (int) target;
        }

        @Override
        public long getPos() {
            return position;
        }

        @Override
        public boolean seekToNewSource(long target) {
            return false;
        }
    }

    @Override
    public FSDataOutputStream create(final Path path, FsPermission permission, boolean overwrite, int bufferSize,
            short replication, long blockSize, Progressable progress) throws IOException {
        if (!overwrite && exists(path)) {
            throw new FileAlreadyExistsException(path.toString());
        }
        final String key = quoted(key(path));
        return new FSDataOutputStream(new ByteArrayOutputStream() {
            private boolean closed;

            @Override
            public void close() throws IOException {
                if (!closed) {
                    closed = true;
                    send("PUT", key, toByteArray());
                }
            }
        }, statistics);
    }

    @Override
    public FSDataOutputStream append(Path path, int bufferSize, Progressable progress) {
        throw new UnsupportedOperationException("append");
    }

    @Override
    public boolean rename(Path source, Path target) throws IOException {
        FileStatus status;
        try {
            status = getFileStatus(source);
        } catch (FileNotFoundException error) {
            return false;
        }
        if (exists(target)) {
            if (!getFileStatus(target).isDirectory()) {
                return false;
            }
            return rename(source, new Path(target, source.getName()));
        }
        if (!status.isDirectory()) {
            move(key(source), key(target));
            return true;
        }
        for (String key : keysBelow(key(source) + "/")) {
            move(key, key(target) + key.substring(key(source).length()));
        }
        return true;
    }

    private void move(String source, String target) throws IOException {
        String bucket = uri.getAuthority();
        send("PUT", quoted(target), null, "x-amz-copy-source", "/" + bucket + "/" + quoted(source));
        send("DELETE", quoted(source), null);
    }

    @Override
    public boolean delete(Path path, boolean recursive) throws IOException {
        FileStatus status;
        try {
            status = getFileStatus(path);
        } catch (FileNotFoundException error) {
            return false;
        }
        if (!status.isDirectory()) {
            send("DELETE", quoted(key(path)), null);
            return true;
        }
        List<String> below = keysBelow(key(path) + "/");
        if (!recursive && below.size() > 1) {
            throw new IOException(path + " is not empty");
        }
        for (String key : below) {
            send("DELETE", quoted(key), null);
        }
        return true;
    }

    private List<String> keysBelow(String prefix) throws IOException {
        List<String> keys = new ArrayList<>();
        for (String page : pages(prefix, false)) {
            Matcher entry = ENTRY.matcher(page);
            while (entry.find()) {
                keys.add(unescaped(entry.group(1)));
            }
        }
        return keys;
    }

    private List<String> pages(String prefix, boolean singleLevel) throws IOException {
        List<String> pages = new ArrayList<>();
        String token = "";
        do {
            String query = "?list-type=2&encoding-type=url&prefix=" + quoted(prefix).replace("/", "%2F");
            query += singleLevel ? "&delimiter=%2F" : "";
            query += token.isEmpty() ? "" : "&continuation-token=" + URLEncoder.encode(token, StandardCharsets.UTF_8);
            String page = new String(send("GET", query, null).body(), StandardCharsets.UTF_8);
            pages.add(page);
            Matcher next = NEXT.matcher(page);
            token = next.find() ? unescaped(next.group(1)) : "";
        } while (!token.isEmpty());
        return pages;
    }

    private static String unescaped(String text) {
        return URLDecoder.decode(text.replace("&amp;", "&").replace("&#34;", "\"").replace("&lt;", "<"),
                StandardCharsets.UTF_8);
    }

    @Override
    public FileStatus[] listStatus(Path path) throws IOException {
        FileStatus status = getFileStatus(path);
        if (!status.isDirectory()) {
            return new FileStatus[] {status};
        }
        String prefix = key(path).isEmpty() ? "" : key(path) + "/";
        List<FileStatus> statuses = new ArrayList<>();
        for (String page : pages(prefix, true)) {
            Matcher entry = ENTRY.matcher(page);
            while (entry.find()) {
                String key = unescaped(entry.group(1));
                if (!key.equals(prefix) && !key.endsWith("/")) {
                    long time = java.time.Instant.parse(entry.group(3)).toEpochMilli();
                    statuses.add(file(new Path(uri + "/" + key), Long.parseLong(entry.group(2)), time));
                }
            }
            Matcher folder = FOLDER.matcher(page);
            while (folder.find()) {
                String key = unescaped(folder.group(1));
                if (keysBelow(key).isEmpty()) {
                    continue; // this server keeps folders after their last object is deleted
                }
                statuses.add(folder(new Path(uri + "/" + key.substring(0, key.length() - 1))));
            }
        }
        return statuses.toArray(new FileStatus[0]);
    }

    @Override
    public void setWorkingDirectory(Path path) {
        working = path;
    }

    @Override
    public Path getWorkingDirectory() {
        return working;
    }

    @Override
    public boolean mkdirs(Path path, FsPermission permission) throws IOException {
        if (!key(path).isEmpty()) {
            send("PUT", quoted(key(path)) + "/", new byte[0]);
        }
        return true;
    }

    @Override
    public FileStatus getFileStatus(Path path) throws IOException {
        String key = key(path);
        if (key.isEmpty()) {
            return folder(path);
        }
        for (String page : pages(key, true)) {
            Matcher entry = ENTRY.matcher(page);
            while (entry.find()) {
                if (unescaped(entry.group(1)).equals(key)) {
                    long time = java.time.Instant.parse(entry.group(3)).toEpochMilli();
                    return file(path, Long.parseLong(entry.group(2)), time);
                }
            }
            Matcher folder = FOLDER.matcher(page);
            while (folder.find()) {
                if (unescaped(folder.group(1)).equals(key + "/") && !keysBelow(key + "/").isEmpty()) {
                    return folder(path);
                }
            }
        }
        throw new FileNotFoundException(path.toString());
    }

    private FileStatus file(Path path, long size, long time) {
        return new FileStatus(size, false, 1, 32 << 20, time, makeQualified(path));
    }

    private FileStatus folder(Path path) {
        return new FileStatus(0, true, 1, 0, 0, makeQualified(path));
    }
}
