// kafka-clients: a member of a share group, BOOTSTRAP TOPIC GROUP HOW; see ../members/share.py.

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class ShareMember {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final Duration COMMIT = Duration.ofSeconds(20);

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0],
            "group.id", arguments[2],
            "share.acknowledgement.mode", "explicit");
        KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(
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
        consumer.subscribe(List.of(arguments[1]));
        try {
            while (true) {
                take(consumer, arguments[3].equals("hold"));
            }
        } catch (WakeupException stopped) {
            consumer.close();
        }
    }

    private static void take(KafkaShareConsumer<byte[], byte[]> consumer, boolean holds)
            throws InterruptedException {
        List<int[]> taken = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
            int count = record.deliveryCount().orElse((short) 0);
            AcknowledgeType type = typeOf(Integer.parseInt(new String(record.value())), count);
            if (!holds) {
                consumer.acknowledge(record, type);
            }
            taken.add(new int[] {
                record.partition(), (int) record.offset(), count, holds ? 0 : type.id});
        }
        if (taken.isEmpty()) {
            return;
        }
        if (holds) {
            tell("held", taken);
            Thread.sleep(600_000);
        }
        Set<Integer> failed = new HashSet<>();
        Map<TopicIdPartition, Optional<KafkaException>> results = consumer.commitSync(COMMIT);
        results.forEach((place, error) -> {
            if (error.isPresent()) {
                failed.add(place.partition());
            }
        });
        tell("took", taken.stream().filter(one -> !failed.contains(one[0])).toList());
        tell("lost", taken.stream().filter(one -> failed.contains(one[0])).toList());
    }

    private static AcknowledgeType typeOf(int number, int count) {
        if (number % 7 == 3) {
            return AcknowledgeType.REJECT;
        }
        if (number % 7 == 6 || (number % 7 == 5 && count == 1)) {
            return AcknowledgeType.RELEASE;
        }
        return AcknowledgeType.ACCEPT;
    }

    private static void tell(String event, List<int[]> at) {
        StringBuilder listed = new StringBuilder();
        for (int[] one : at) {
            listed.append(listed.isEmpty() ? "" : ", ").append(java.util.Arrays.toString(one));
        }
        long now = System.currentTimeMillis();
        System.out.println(
            "{\"t\": " + now + ", \"event\": \"" + event + "\", \"at\": [" + listed + "]}");
    }
}
