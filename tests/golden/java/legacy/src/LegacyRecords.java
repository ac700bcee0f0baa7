import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.TimestampType;

/**
 * One line per message set: its name and its bytes in hex. Every set holds the same four records at
 * offsets 100 to 103: k0=v0, null key, null value, an empty key with 200 times "x".
 * Run: mvn -B -q compile exec:java -Dexec.mainClass=LegacyRecords > expected.hex
 */
public final class LegacyRecords {
    private static final long BASE_OFFSET = 100;
    private static final long BASE_TIMESTAMP = 1_700_000_000_000L;
    private static final long LOG_APPEND_TIME = 1_700_000_999_000L;

    public static void main(String[] args) {
        for (byte magic = 0; magic <= 1; magic++) {
            for (CompressionType type : CompressionType.values()) {
                if (type != CompressionType.ZSTD) {
                    print("magic" + magic + " " + type.name, magic, type, TimestampType.CREATE_TIME);
                }
            }
        }
        print("magic1 append-none", (byte) 1, CompressionType.NONE, TimestampType.LOG_APPEND_TIME);
        print("magic1 append-gzip", (byte) 1, CompressionType.GZIP, TimestampType.LOG_APPEND_TIME);
    }

    private static void print(String name, byte magic, CompressionType type, TimestampType timestamps) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            ByteBuffer.allocate(1024), magic, Compression.of(type).build(), timestamps, BASE_OFFSET,
            timestamps == TimestampType.LOG_APPEND_TIME ? LOG_APPEND_TIME : -1L);
        builder.append(BASE_TIMESTAMP, bytes("k0"), bytes("v0"));
        builder.append(BASE_TIMESTAMP + 7, null, bytes("v1"));
        builder.append(BASE_TIMESTAMP + 3, bytes("k2"), null);
        builder.append(BASE_TIMESTAMP + 5, bytes(""), bytes("x".repeat(200)));
        ByteBuffer buffer = builder.build().buffer();
        byte[] out = new byte[buffer.remaining()];
        buffer.get(out);
        System.out.println(name + " " + HexFormat.of().formatHex(out));
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
