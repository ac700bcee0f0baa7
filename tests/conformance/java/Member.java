// kafka-clients: a member of a group, BOOTSTRAP TOPIC GROUP INSTANCE PROTOCOL; see ../members/lines.py.

import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class Member implements ConsumerRebalanceListener {
    private static final Duration POLL = Duration.ofMillis(200);

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", arguments[0],
            "group.id", arguments[2],
            "auto.offset.reset", "earliest",
            "enable.auto.commit", false,
            "group.protocol", arguments[4]));
        if (arguments[4].equals("classic")) {
            // A JVM may take ten seconds to start beside others, and the static member must be back.
            settings.put("session.timeout.ms", 20000);
            settings.put("heartbeat.interval.ms", 500);
        }
        if (!arguments[3].equals("-")) {
            settings.put("group.instance.id", arguments[3]);
        }
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
            settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                main.join(10_000);
            } catch (InterruptedException ignored) {
                main.interrupt();
            }
        }));
        consumer.subscribe(List.of(arguments[1]), new Member());
        try {
            while (true) {
                read(consumer);
            }
        } catch (WakeupException stopped) {
            consumer.close();
        }
    }

    private static void read(KafkaConsumer<byte[], byte[]> consumer) {
        ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
        if (records.isEmpty()) {
            return;
        }
        try {
            consumer.commitSync();
        } catch (WakeupException stopped) {
            throw stopped;
        } catch (KafkaException rebalance) {
            return;
        }
        StringBuilder at = new StringBuilder();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            at.append(at.isEmpty() ? "" : ", ");
            at.append("[" + record.partition() + ", " + record.offset() + "]");
        }
        tell("read", "\"at\": [" + at + "]");
    }

    private static void tell(String event, String rest) {
        long now = System.currentTimeMillis();
        System.out.println("{\"t\": " + now + ", \"event\": \"" + event + "\", " + rest + "}");
    }

    private static void changed(String event, Collection<TopicPartition> partitions) {
        String listed = partitions.stream().map(one -> "" + one.partition())
            .collect(Collectors.joining(", "));
        tell(event, "\"partitions\": [" + listed + "]");
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        changed("assigned", partitions);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        changed("revoked", partitions);
    }
}
