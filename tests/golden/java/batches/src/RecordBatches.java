import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;

/**
 * write (no argument): one line per codec but none, its name and a batch in hex. Every batch holds the same
 * five records at offset 100, of producer 7, epoch 3, sequence 11: k0=v0 with two headers, one of
 * them null; a null key and value; 70,000 characters that repeat every 1,000; an empty key and
 * value; and k4=v4.
 * read: takes such lines from standard input and prints, per line, name, records and a hash.
 * Run: mvn -B -q compile exec:java -Dexec.mainClass=RecordBatches [-Dexec.args=read] > expected.hex
 */
public final class RecordBatches {
    private static final long BASE_TIMESTAMP = 1_700_000_000_000L;

    public static void main(String[] args) throws Exception {
        if (args.length > 0 && args[0].equals("read")) {
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                read(line);
            }
            return;
        }
        for (CompressionType type : CompressionType.values()) {
            if (type != CompressionType.NONE) {
                write(type);
            }
        }
    }

    private static void write(CompressionType type) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            ByteBuffer.allocate(1024), RecordBatch.MAGIC_VALUE_V2, Compression.of(type).build(),
            TimestampType.CREATE_TIME, 100L, -1L, 7L, (short) 3, 11, false, 5);
        StringBuilder pattern = new StringBuilder();
        for (int i = 0; i < 250; i++) {
            pattern.append(String.format("%04d", i * i % 9973));
        }
        Header[] headers = {new RecordHeader("h", bytes("x")), new RecordHeader("null", null)};
        builder.append(BASE_TIMESTAMP, bytes("k0"), bytes("v0"), headers);
        builder.append(BASE_TIMESTAMP + 7, (byte[]) null, null);
        builder.append(BASE_TIMESTAMP - 3, bytes("big"), bytes(pattern.toString().repeat(70)));
        builder.append(BASE_TIMESTAMP + 5, bytes(""), bytes(""));
        builder.append(BASE_TIMESTAMP + 5, bytes("k4"), bytes("v4"));
        ByteBuffer buffer = builder.build().buffer();
        byte[] out = new byte[buffer.remaining()];
        buffer.get(out);
        System.out.println(type.name + " " + HexFormat.of().formatHex(out));
    }

    private static void read(String line) {
        String[] parts = line.split(" ");
        MemoryRecords records = MemoryRecords.readableRecords(
            ByteBuffer.wrap(HexFormat.of().parseHex(parts[1])));
        int count = 0;
        int hash = 1;
        for (MutableRecordBatch batch : records.batches()) {
            batch.ensureValid();
            for (Record record : batch) {
                count++;
                hash = 31 * hash + (int) record.offset();
                hash = 31 * hash + (int) record.timestamp();
                hash = 31 * hash + hash(record.key());
                hash = 31 * hash + hash(record.value());
                for (Header header : record.headers()) {
                    hash = 31 * hash + hash(ByteBuffer.wrap(bytes(header.key())));
                    byte[] value = header.value();
                    hash = 31 * hash + hash(value == null ? null : ByteBuffer.wrap(value));
                }
            }
        }
        System.out.println(parts[0] + " " + count + " " + hash);
    }

    private static int hash(ByteBuffer buffer) {
        if (buffer == null) {
            return 17;
        }
        int hash = 1;
        while (buffer.hasRemaining()) {
            hash = 31 * hash + buffer.get();
        }
        return hash;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
