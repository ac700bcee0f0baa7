// kafka-clients: produce|consume BOOTSTRAP TOPIC RECORDS. The records and digests are those of
// ../records.py. Run as a source file, with the jars of pom.xml on the class path.

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Driver {
    private static final int PARTITIONS = 3;
    private static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};
    private static final Duration SILENCE_MAX = Duration.ofSeconds(30);

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[1];
        String topic = arguments[2];
        int count = Integer.parseInt(arguments[3]);
        List<String> digests = List.of();
        if (arguments[0].equals("produce")) {
            for (int number = 0; number < CODECS.length; number++) {
                produce(bootstrap, topic, count, number);
            }
        } else {
            digests = consume(bootstrap, topic, count);
        }
        String listed = digests.stream().map(d -> '"' + d + '"').collect(Collectors.joining(", "));
        System.out.println("{\"records\": " + count + ", \"digests\": [" + listed + "]}");
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, String codec, int i)
            throws Exception {
        byte[] number = bytes(Integer.toString(i));
        byte[] sum = MessageDigest.getInstance("SHA-256").digest(number);
        ByteBuffer value = ByteBuffer.allocate(sum.length * (i % 32 + 1));
        while (value.hasRemaining()) {
            value.put(sum);
        }
        ProducerRecord<byte[], byte[]> record =
            new ProducerRecord<>(topic, i % PARTITIONS, bytes("key-" + i), value.array());
        record.headers().add("codec", bytes(codec));
        record.headers().add("n", number);
        if (i % 5 == 0) {
            record.headers().add("n", new byte[0]);
        }
        return record;
    }

    private static void produce(String bootstrap, String topic, int count, int number)
            throws Exception {
        Map<String, Object> settings =
            Map.of("bootstrap.servers", bootstrap, "compression.type", CODECS[number]);
        List<Future<RecordMetadata>> answers = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int i = 0; i < count; i++) {
                if (5L * i / count == number) {
                    answers.add(producer.send(record(topic, CODECS[number], i)));
                }
            }
        }
        for (Future<RecordMetadata> answer : answers) {
            answer.get();
        }
    }

    private static List<String> consume(String bootstrap, String topic, int count)
            throws Exception {
        List<TopicPartition> partitions = new ArrayList<>();
        List<MessageDigest> digests = new ArrayList<>();
        for (int partition = 0; partition < PARTITIONS; partition++) {
            partitions.add(new TopicPartition(topic, partition));
            digests.add(MessageDigest.getInstance("SHA-256"));
        }
        Map<String, Object> settings =
            Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", false);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(partitions);
            partitions.forEach(partition -> consumer.seek(partition, 0));
            for (int read = 0; read < count; ) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(SILENCE_MAX);
                if (records.isEmpty()) {
                    throw new IllegalStateException("nothing more after " + read + " records");
                }
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    add(digests.get(record.partition()), record);
                }
                read += records.count();
            }
        }
        return digests.stream().map(d -> HexFormat.of().formatHex(d.digest())).toList();
    }

    private static void add(MessageDigest digest, ConsumerRecord<byte[], byte[]> record) {
        digest.update(ByteBuffer.allocate(8).putLong(0, record.offset()));
        sized(digest, record.key());
        sized(digest, record.value());
        Header[] headers = record.headers().toArray();
        digest.update(ByteBuffer.allocate(4).putInt(0, headers.length));
        for (Header header : headers) {
            sized(digest, bytes(header.key()));
            sized(digest, header.value());
        }
    }

    private static void sized(MessageDigest digest, byte[] data) {
        digest.update(ByteBuffer.allocate(4).putInt(0, data == null ? -1 : data.length));
        if (data != null) {
            digest.update(data);
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
