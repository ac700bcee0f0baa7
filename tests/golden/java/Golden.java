import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;

/**
 * Writes messages as Kafka's own classes encode them, one line "Name version hex" each.
 *
 * Every field that a version has is filled by a rule that tests/protocol/filling.py repeats: a
 * counter, starting at 1 for each line, advances with every scalar, depth first in the order of
 * declaration; arrays have two elements; nothing is null; no value is a field's default.
 *
 * Arguments: a directory for the text files, or "-" and names of message classes for stdout.
 */
public final class Golden {
    private static final List<String> PACKAGES = List.of(
        "org.apache.kafka.common.message.", "org.apache.kafka.common.metadata.",
        "org.apache.kafka.coordinator.group.generated.",
        "org.apache.kafka.coordinator.transaction.generated.",
        "org.apache.kafka.coordinator.share.generated.");

    private static final List<String> SERVED = List.of(
        "Produce", "Fetch", "ListOffsets", "Metadata", "ApiVersions", "CreateTopics",
        "DeleteTopics", "DeleteRecords", "InitProducerId", "OffsetForLeaderEpoch",
        "DescribeConfigs", "AlterConfigs", "DescribeLogDirs", "CreatePartitions",
        "IncrementalAlterConfigs", "DescribeQuorum", "DescribeCluster",
        "DescribeTopicPartitions", "FindCoordinator", "OffsetCommit", "OffsetFetch", "OffsetDelete",
        "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "ListGroups", "DescribeGroups",
        "DeleteGroups", "AlterReplicaLogDirs", "ElectLeaders", "AlterPartitionReassignments",
        "ListPartitionReassignments", "UpdateFeatures", "DescribeProducers", "UnregisterBroker",
        "ListConfigResources", "DescribeClientQuotas", "AlterClientQuotas",
        "DescribeUserScramCredentials", "ConsumerGroupHeartbeat", "ConsumerGroupDescribe",
        "ShareGroupHeartbeat", "ShareGroupDescribe", "ShareFetch", "ShareAcknowledge",
        "InitializeShareGroupState", "ReadShareGroupState", "WriteShareGroupState",
        "DeleteShareGroupState", "ReadShareGroupStateSummary", "DescribeShareGroupOffsets",
        "AlterShareGroupOffsets", "DeleteShareGroupOffsets",
        "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "WriteTxnMarkers", "TxnOffsetCommit",
        "DescribeTransactions", "ListTransactions");

    private static final List<String> CONTROL_RECORDS = List.of(
        "ControlRecordTypeSchema", "EndTxnMarker", "LeaderChangeMessage", "SnapshotHeaderRecord",
        "SnapshotFooterRecord", "KRaftVersionRecord", "VotersRecord");

    private static final List<String> METADATA_RECORDS = List.of(
        "RegisterBrokerRecord", "UnregisterBrokerRecord", "TopicRecord", "PartitionRecord",
        "ConfigRecord", "PartitionChangeRecord", "FenceBrokerRecord", "UnfenceBrokerRecord",
        "RemoveTopicRecord", "DelegationTokenRecord", "UserScramCredentialRecord",
        "FeatureLevelRecord", "ClientQuotaRecord", "ProducerIdsRecord",
        "BrokerRegistrationChangeRecord", "AccessControlEntryRecord",
        "RemoveAccessControlEntryRecord", "NoOpRecord", "ZkMigrationStateRecord",
        "RemoveUserScramCredentialRecord", "BeginTransactionRecord", "EndTransactionRecord",
        "AbortTransactionRecord", "RemoveDelegationTokenRecord", "RegisterControllerRecord",
        "ClearElrRecord");

    private static final List<String> COORDINATOR_RECORDS = List.of(
        "LegacyOffsetCommitKey", "LegacyOffsetCommitValue", "OffsetCommitKey", "OffsetCommitValue",
        "GroupMetadataKey", "GroupMetadataValue",
        "ConsumerGroupMetadataKey", "ConsumerGroupMetadataValue",
        "ConsumerGroupPartitionMetadataKey", "ConsumerGroupPartitionMetadataValue",
        "ConsumerGroupMemberMetadataKey", "ConsumerGroupMemberMetadataValue",
        "ConsumerGroupTargetAssignmentMetadataKey", "ConsumerGroupTargetAssignmentMetadataValue",
        "ConsumerGroupTargetAssignmentMemberKey", "ConsumerGroupTargetAssignmentMemberValue",
        "ConsumerGroupCurrentMemberAssignmentKey", "ConsumerGroupCurrentMemberAssignmentValue",
        "ConsumerGroupRegularExpressionKey", "ConsumerGroupRegularExpressionValue",
        "TransactionLogKey", "TransactionLogValue");

    private final short version;
    private int counter = 0;

    private Golden(short version) {
        this.version = version;
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("-")) {
            for (int i = 1; i < arguments.length; i++) {
                lines(arguments[i]).forEach(System.out::println);
            }
            return;
        }
        Path directory = Path.of(arguments[0]);
        Map<String, List<String>> files = new LinkedHashMap<>();
        for (String api : SERVED) {
            files.put(api, List.of(api + "Request", api + "Response"));
        }
        files.put("headers", List.of("RequestHeader", "ResponseHeader"));
        files.put("control_records", CONTROL_RECORDS);
        files.put("metadata_records", METADATA_RECORDS);
        files.put("coordinator_records", COORDINATOR_RECORDS);
        for (Map.Entry<String, List<String>> file : files.entrySet()) {
            List<String> lines = new ArrayList<>();
            for (String name : file.getValue()) {
                lines.addAll(lines(name));
            }
            Files.write(directory.resolve(file.getKey() + ".txt"), lines);
        }
    }

    private static List<String> lines(String name) throws Exception {
        Class<?> type = find(name);
        List<String> lines = new ArrayList<>();
        short first = type.getField("LOWEST_SUPPORTED_VERSION").getShort(null);
        short last = type.getField("HIGHEST_SUPPORTED_VERSION").getShort(null);
        for (short version = first; version <= last; version++) {
            Message message = (Message) type.getConstructor().newInstance();
            new Golden(version).fill(message);
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(buffer), cache, version);
            lines.add(name + " " + version + " " + HexFormat.of().formatHex(buffer.array()));
        }
        return lines;
    }

    private static Class<?> find(String name) throws ClassNotFoundException {
        for (String prefix : PACKAGES) {
            for (String suffix : List.of("Data", "")) {
                try {
                    return Class.forName(prefix + name + suffix);
                } catch (ClassNotFoundException ignored) {
                    continue;
                }
            }
        }
        throw new ClassNotFoundException(name);
    }

    private void fill(Object message) throws Exception {
        Map<String, String> types = types(message.getClass());
        for (Field field : message.getClass().getDeclaredFields()) {
            String type = types.get(snakeCase(field.getName()));
            if (Modifier.isStatic(field.getModifiers()) || type == null) {
                continue;
            }
            field.setAccessible(true);
            if (Collection.class.isAssignableFrom(field.getType())) {
                field.set(message, elements(field));
            } else {
                field.set(message, value(field.getType(), type, field.get(message)));
            }
        }
    }

    /** The fields of this version, tagged ones included, and the names of their types. */
    private Map<String, String> types(Class<?> type) throws Exception {
        Schema schema = (Schema) type.getField("SCHEMA_" + version).get(null);
        Map<String, String> types = new HashMap<>();
        for (BoundField field : schema.fields()) {
            if (field.def.type instanceof TaggedFields tagged) {
                tagged.fields().values().forEach(f -> types.put(f.name, f.type.toString()));
            } else {
                types.put(field.def.name, field.def.type.toString());
            }
        }
        return types;
    }

    @SuppressWarnings("unchecked")
    private Collection<Object> elements(Field field) throws Exception {
        boolean isList = field.getType() == List.class;
        ParameterizedType generic = (ParameterizedType) (isList
            ? field.getGenericType() : field.getType().getGenericSuperclass());
        Class<?> element = (Class<?>) generic.getActualTypeArguments()[0];
        Collection<Object> elements = isList
            ? new ArrayList<>()
            : (Collection<Object>) field.getType().getConstructor().newInstance();
        elements.add(value(element, "", null));
        elements.add(value(element, "", null));
        return elements;
    }

    private Object value(Class<?> type, String typeName, Object initial) throws Exception {
        if (Message.class.isAssignableFrom(type)) {
            Object struct = type.getConstructor().newInstance();
            fill(struct);
            return struct;
        }
        Object value = scalar(type, typeName);
        return value.equals(initial) ? scalar(type, typeName) : value;
    }

    private Object scalar(Class<?> type, String typeName) throws IOException {
        int c = ++counter;
        if (type == boolean.class) {
            return c % 2 == 1;
        } else if (type == byte.class || type == Byte.class) {
            return (byte) (c % 100 + 1);
        } else if (type == short.class || type == Short.class) {
            return (short) (1000 + c);
        } else if (typeName.equals("UINT16")) {
            return 40_000 + c;
        } else if (typeName.equals("UINT32")) {
            return 3_000_000_000L + c;
        } else if (type == int.class || type == Integer.class) {
            return 100_000 + c;
        } else if (type == long.class || type == Long.class) {
            return (1L << 40) + c;
        } else if (type == double.class) {
            return c + 0.5;
        } else if (type == String.class) {
            return "s" + c + "\u00e9" + (c % 11 == 0 ? "x".repeat(150) : "");
        } else if (type == Uuid.class) {
            ByteBuffer bytes = ByteBuffer.wrap(content(c, 16));
            return new Uuid(bytes.getLong(), bytes.getLong());
        } else if (type == byte[].class) {
            return content(c, c % 3 == 0 ? 150 : 3);
        } else if (type == ByteBuffer.class) {
            return ByteBuffer.wrap(content(c, c % 3 == 0 ? 150 : 3));
        }
        return Records.of(content(c, 140));
    }

    private static byte[] content(int counter, int size) {
        byte[] bytes = new byte[size];
        for (int i = 0; i < size; i++) {
            bytes[i] = (byte) (counter + i);
        }
        return bytes;
    }

    /** As Kafka's generator names the fields of a schema: kRaftVersion is kraft_version. */
    private static String snakeCase(String name) {
        StringBuilder out = new StringBuilder(name.substring(0, 1));
        boolean capital = true;
        for (char c : name.substring(1).toCharArray()) {
            if (Character.isUpperCase(c) && !capital) {
                out.append('_');
            }
            capital = Character.isUpperCase(c);
            out.append(Character.toLowerCase(c));
        }
        return out.toString();
    }

    /** Record batches that nobody reads. */
    private static final class Records {
        static Object of(byte[] content) {
            return org.apache.kafka.common.record.internal.MemoryRecords.readableRecords(
                ByteBuffer.wrap(content));
        }
    }
}
