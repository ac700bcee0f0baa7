// kafka-clients: a member of a share group, BOOTSTRAP TOPIC GROUP HOW; see ../members/share.py.

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
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
    private static final Set<Integer> RENEWED = Set.of(74, 81, 88, 95);

    /** When a record that is renewed was first seen, by its number. */
    private static final Map<Integer, Long> SINCE = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0],
            "group.id", arguments[2],
            "share.acknowledgement.mode", arguments[3].equals("implicit") ? "implicit" : "explicit");
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
                take(consumer, arguments[3]);
            }
        } catch (WakeupException stopped) {
            consumer.close();
        }
    }

    private static void take(KafkaShareConsumer<byte[], byte[]> consumer, String how)
            throws InterruptedException {
        List<int[]> taken = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
            int count = record.deliveryCount().orElse((short) 0);
            int number = Integer.parseInt(new String(record.value()));
            AcknowledgeType type = AcknowledgeType.ACCEPT;
            if (how.equals("work")) {
                boolean waits = RENEWED.contains(number) && isLockedAtFirst(consumer, number);
                type = waits ? AcknowledgeType.RENEW : typeOf(number, count);
                consumer.acknowledge(record, type);
            }
            int told = how.equals("hold") ? 0 : type.id;
            taken.add(new int[] {record.partition(), (int) record.offset(), count, told});
        }
        if (taken.isEmpty()) {
            return;
        }
        if (how.equals("hold")) {
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
        List<int[]> done = taken.stream().filter(one -> !failed.contains(one[0])).toList();
        List<int[]> renewed =
            done.stream().filter(one -> one[3] == AcknowledgeType.RENEW.id).toList();
        tell("took", done.stream().filter(one -> !renewed.contains(one)).toList());
        tell("renewed", renewed);
        tell("lost", taken.stream().filter(one -> failed.contains(one[0])).toList());
        if (!renewed.isEmpty()) {
            Thread.sleep(lockMs(consumer) / 4);  // they are handed out again by the next poll
        }
    }

    private static int lockMs(KafkaShareConsumer<byte[], byte[]> consumer) {
        return consumer.acquisitionLockTimeoutMs().orElseThrow();
    }

    /** Whether the lock that a record came with would still hold it, and a bit longer. */
    private static boolean isLockedAtFirst(
            KafkaShareConsumer<byte[], byte[]> consumer, int number) {
        long now = System.currentTimeMillis();
        return now - SINCE.computeIfAbsent(number, first -> now) < lockMs(consumer) * 5 / 4;
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
