import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.tools.StreamsResetter;

/** Runs Kafka's own application reset tool, once for each line of options, separated by tabs, on stdin. */
public final class StreamsResets {
    public static void main(String[] none) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = input.readLine()) != null; ) {
            int code = new StreamsResetter().execute(line.split("\t"));
            if (code != 0) {
                System.exit(code);
            }
        }
    }
}
