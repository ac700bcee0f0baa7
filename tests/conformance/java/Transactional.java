// kafka-clients: a transactional client, BOOTSTRAP TRANSACTIONAL_ID; see ../transactional/commands.py.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Transactional {
    private static final String END = "end";
    private static final int TAKE = 20;
    private static final int ANSWER_MS_MAX = 40_000;
    private static final Duration SILENCE_MAX = Duration.ofSeconds(30);

    private final String bootstrap;
    private final KafkaProducer<String, String> producer;

    private Transactional(String bootstrap, String name) {
        this.bootstrap = bootstrap;
        producer = new KafkaProducer<>(
            Map.of(
                "bootstrap.servers", bootstrap,
                "transactional.id", name,
                "max.block.ms", ANSWER_MS_MAX,
                "delivery.timeout.ms", ANSWER_MS_MAX),
            new StringSerializer(), new StringSerializer());
        producer.initTransactions();
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        Transactional client = null;
        String line = "";
        while (line != null) {
            List<ConsumerRecord<String, String>> values = new ArrayList<>();
            String error = "";
            try {
                if (client == null) {
                    client = new Transactional(arguments[0], arguments[1]);
                } else {
                    client.run(line.split(" "), values);
                }
            } catch (KafkaException raised) {
                error = raised.getClass().getSimpleName() + ": " + raised.getMessage();
            }
            answer(error, values);
            line = client == null ? null : input.readLine();
        }
        System.exit(0);
    }

    private static void answer(String error, List<ConsumerRecord<String, String>> values) {
        StringBuilder listed = new StringBuilder();
        for (ConsumerRecord<String, String> one : values) {
            listed.append(listed.isEmpty() ? "" : ", ");
            listed.append("[" + one.partition() + ", \"" + one.value() + "\"]");
        }
        String said = error.replaceAll("[\"\\\\\\p{Cntrl}]", " ");
        System.out.println("{\"error\": \"" + said + "\", \"values\": [" + listed + "]}");
    }

    private void run(String[] words, List<ConsumerRecord<String, String>> values) throws Exception {
        switch (words[0]) {
            case "begin" -> producer.beginTransaction();
            case "send" -> send(
                words[1], Integer.parseInt(words[2]), Arrays.asList(words).subList(3, words.length));
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            case "read" -> read(words[1], words[2], Integer.parseInt(words[3]), values);
            case "transform" ->
                transform(words[1], words[2], words[3], Integer.parseInt(words[4]));
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private void send(String topic, int partition, List<String> values) throws Exception {
        List<Future<?>> answers = new ArrayList<>();
        for (String value : values) {
            answers.add(producer.send(new ProducerRecord<>(topic, partition, null, value)));
        }
        producer.flush();
        for (Future<?> answer : answers) {
            try {
                answer.get();
            } catch (java.util.concurrent.ExecutionException failed) {
                throw new KafkaException(failed.getCause().toString(), failed);
            }
        }
    }

    private void read(
            String isolation, String topic, int partitions,
            List<ConsumerRecord<String, String>> values) {
        try (KafkaConsumer<String, String> consumer = consumer("reader", "read_" + isolation)) {
            List<TopicPartition> places = IntStream.range(0, partitions)
                .mapToObj(index -> new TopicPartition(topic, index)).toList();
            consumer.assign(places);
            consumer.seekToBeginning(places);
            while (ends(values) < partitions) {
                values.addAll(taken(consumer));
            }
        }
    }

    private void transform(String source, String sink, String group, int partitions)
            throws Exception {
        try (KafkaConsumer<String, String> consumer = consumer(group, "read_committed")) {
            consumer.subscribe(List.of(source));
            boolean aborted = false;
            int ended = 0;
            while (ended < partitions) {
                List<ConsumerRecord<String, String>> values = taken(consumer);
                producer.beginTransaction();
                send(sink, 0, values.stream().map(one -> one.value() + "'").toList());
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (TopicPartition place : consumer.assignment()) {
                    offsets.put(place, new OffsetAndMetadata(consumer.position(place)));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (aborted) {
                    producer.commitTransaction();
                    ended += ends(values);
                } else {
                    producer.abortTransaction();
                    aborted = true;
                    consumer.committed(consumer.assignment()).forEach((place, committed) ->
                        consumer.seek(place, committed == null ? 0 : committed.offset()));
                }
            }
        }
    }

    private KafkaConsumer<String, String> consumer(String group, String isolation) {
        return new KafkaConsumer<>(
            Map.of(
                "bootstrap.servers", bootstrap,
                "group.id", group,
                "isolation.level", isolation,
                "auto.offset.reset", "earliest",
                "enable.auto.commit", false,
                "max.poll.records", TAKE),
            new StringDeserializer(), new StringDeserializer());
    }

    private static int ends(List<ConsumerRecord<String, String>> values) {
        return (int) values.stream().filter(one -> one.value().equals(END)).count();
    }

    /** The next records, one at least. */
    private static List<ConsumerRecord<String, String>> taken(
            KafkaConsumer<String, String> consumer) {
        List<ConsumerRecord<String, String>> taken = new ArrayList<>();
        consumer.poll(SILENCE_MAX).forEach(taken::add);
        if (taken.isEmpty()) {
            throw new KafkaException("nothing more comes");
        }
        return taken;
    }
}
