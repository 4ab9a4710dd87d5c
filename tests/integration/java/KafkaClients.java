import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.DoubleDeserializer;
import org.apache.kafka.common.serialization.DoubleSerializer;
import org.apache.kafka.common.serialization.IntegerDeserializer;
import org.apache.kafka.common.serialization.IntegerSerializer;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.LongSerializer;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.connect.json.JsonDeserializer;
import org.apache.kafka.connect.json.JsonSerializer;

/**
 * Java's own producer, consumer and command line tools, for tests that compare another client with them.
 *
 * <p>Each line of standard input is a request, each line of standard output its answer, both JSON:
 *
 * <p>{"produce": [[topic, kind of key, key, kind of value, value, timestamp, [[name, hex], ...]], ...],
 * "settings", "ending": "plain" | "commit" | "abort"} is answered by a list of [partition, offset];
 * {"consume": topic, "key", "value", "settings"} by a list of [partition, offset, key, value, timestamp,
 * headers] of all that lies in the topic; {"tool": class, "arguments"} by [exit code, what it printed].
 * Keys and values are texts, or null: what the kind's own type prints, bytes as hex.
 */
public final class KafkaClients {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();
    private static final Duration POLL = Duration.ofMillis(200);

    private KafkaClients() {}

    /** How a type's keys and values are written, read and printed. */
    private record Kind(Serializer<?> serializer, Deserializer<?> deserializer, Parse parse, Print print) {
        byte[] bytes(String topic, JsonNode text) throws Exception {
            return text.isNull() ? null : write(serializer, topic, parse.apply(text.asText()));
        }

        String text(String topic, byte[] data) {
            return data == null ? null : print.apply(deserializer.deserialize(topic, data));
        }

        @SuppressWarnings("unchecked")
        private static <T> byte[] write(Serializer<T> serializer, String topic, Object value) {
            return serializer.serialize(topic, (T) value);
        }
    }

    private interface Parse {
        Object apply(String text) throws Exception;
    }

    private interface Print {
        String apply(Object value);
    }

    private static final Map<String, Kind> KINDS = Map.of(
            "string", new Kind(new StringSerializer(), new StringDeserializer(), text -> text, Object::toString),
            "int64", new Kind(new LongSerializer(), new LongDeserializer(), Long::valueOf, Object::toString),
            "int32", new Kind(new IntegerSerializer(), new IntegerDeserializer(), Integer::valueOf, Object::toString),
            "double", new Kind(new DoubleSerializer(), new DoubleDeserializer(), Double::valueOf, Object::toString),
            "bytes",
                    new Kind(
                            new ByteArraySerializer(),
                            new ByteArrayDeserializer(),
                            HEX::parseHex,
                            value -> HEX.formatHex((byte[]) value)),
            "json", new Kind(new JsonSerializer(), new JsonDeserializer(), JSON::readTree, Object::toString));

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode request = JSON.readTree(line);
            ArrayNode answer;
            if (request.has("produce")) {
                answer = produce(request);
            } else if (request.has("consume")) {
                answer = consume(request);
            } else {
                answer = tool(request);
            }
            out.println(JSON.writeValueAsString(answer));
            out.flush();
        }
    }

    private static Properties settings(JsonNode request) {
        Properties settings = new Properties();
        request.get("settings").fields().forEachRemaining(field -> settings.put(field.getKey(), field.getValue().asText()));
        return settings;
    }

    private static ArrayNode produce(JsonNode request) throws Exception {
        String ending = request.get("ending").asText();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings(request), new ByteArraySerializer(), new ByteArraySerializer())) {
            if (!ending.equals("plain")) {
                producer.initTransactions();
                producer.beginTransaction();
            }
            for (JsonNode record : request.get("produce")) {
                sent.add(producer.send(record(record)));
            }
            producer.flush();
            if (ending.equals("commit")) {
                producer.commitTransaction();
            } else if (ending.equals("abort")) {
                producer.abortTransaction();
            }
        }
        ArrayNode answer = JSON.createArrayNode();
        for (Future<RecordMetadata> place : sent) {
            answer.addArray().add(place.get().partition()).add(place.get().offset());
        }
        return answer;
    }

    private static ProducerRecord<byte[], byte[]> record(JsonNode record) throws Exception {
        String topic = record.get(0).asText();
        byte[] key = KINDS.get(record.get(1).asText()).bytes(topic, record.get(2));
        byte[] value = KINDS.get(record.get(3).asText()).bytes(topic, record.get(4));
        Long timestamp = record.get(5).isNull() ? null : record.get(5).asLong();
        ProducerRecord<byte[], byte[]> made = new ProducerRecord<>(topic, null, timestamp, key, value);
        for (JsonNode header : record.get(6)) {
            made.headers().add(header.get(0).asText(), HEX.parseHex(header.get(1).asText()));
        }
        return made;
    }

    private static ArrayNode consume(JsonNode request) {
        String topic = request.get("consume").asText();
        Kind keys = KINDS.get(request.get("key").asText());
        Kind values = KINDS.get(request.get("value").asText());
        ArrayNode answer = JSON.createArrayNode();
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings(request), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                    .map(info -> new TopicPartition(topic, info.partition()))
                    .toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(partition -> consumer.position(partition) < ends.get(partition))) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    ArrayNode row = answer.addArray();
                    row.add(record.partition()).add(record.offset());
                    row.add(keys.text(topic, record.key())).add(values.text(topic, record.value()));
                    row.add(record.timestamp());
                    ArrayNode headers = row.addArray();
                    for (Header header : record.headers()) {
                        headers.addArray().add(header.key()).add(HEX.formatHex(header.value()));
                    }
                }
            }
        }
        return answer;
    }

    /** Runs a tool's main in this process, which saves its start; the tool's exit becomes an exception. */
    private static ArrayNode tool(JsonNode request) throws Exception {
        List<String> arguments = new ArrayList<>();
        request.get("arguments").forEach(argument -> arguments.add(argument.asText()));
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream before = System.out;
        Exit.Procedure exit = (code, message) -> {
            throw new Exited(code);
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        int code = 0;
        try {
            Class.forName(request.get("tool").asText())
                    .getMethod("main", String[].class)
                    .invoke(null, (Object) arguments.toArray(new String[0]));
        } catch (InvocationTargetException failed) {
            if (!(failed.getCause() instanceof Exited exited)) {
                throw failed;
            }
            code = exited.code;
        } finally {
            System.setOut(before);
        }
        return JSON.createArrayNode().add(code).add(printed.toString(StandardCharsets.UTF_8));
    }

    private static final class Exited extends Error {
        private final int code;

        Exited(int code) {
            this.code = code;
        }
    }
}
