// Apache Kafka's own commands, one after another in one process; see ../command_process.py.

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

public class Commands {
    /** What a command that ends its process meets instead. */
    private static final class Ended extends Error {
        Ended() {
            super("the command has ended", null, false, false);
        }
    }

    /** What the command had said and its status when it wanted to end: some catch what is thrown,
     * print it and go on. */
    private static String output;
    private static int status;

    private static final ByteArrayOutputStream said = new ByteArrayOutputStream();

    public static void main(String[] none) throws Exception {
        PrintStream answers = System.out;
        // Before any class of theirs is loaded: Scala keeps the stream that it finds then.
        PrintStream told = new PrintStream(said, true, StandardCharsets.UTF_8);
        System.setOut(told);
        System.setErr(told);
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        ObjectMapper json = new ObjectMapper();
        BufferedReader lines = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            said.reset();
            output = null;
            run(json.readValue(line, String[].class));
            ended(0);
            answers.println(json.writeValueAsString(Map.of("status", status, "output", output)));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void end(int code) {
        ended(code);
        throw new Ended();
    }

    private static void ended(int code) {
        if (output == null) {
            status = code;
            output = said.toString(StandardCharsets.UTF_8);
        }
    }

    private static void run(String[] words) throws ReflectiveOperationException {
        Object arguments = Arrays.copyOfRange(words, 1, words.length);
        try {
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, arguments);
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof Ended)) {
                // As a process of its own would end.
                error.getCause().printStackTrace();
                ended(1);
            }
        }
    }
}
