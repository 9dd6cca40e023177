package headwater.benchmarks;

import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;

/**
 * Runs SQL in a cluster inside this process: {@code FlinkPeer STATEMENTS [name=value …]}, statements of one file, ended
 * by a line with a semicolon at its end. Says when it starts the last one, which never ends.
 */
public final class FlinkPeer {
    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        for (int at = 1; at < arguments.length; at++) {
            String[] setting = arguments[at].split("=", 2);
            settings.setString(setting[0], setting[1]);
        }
        TableEnvironment tables =
                TableEnvironment.create(
                        EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(settings).build());
        TableResult last = null;
        for (String statement : Files.readString(Path.of(arguments[0])).split(";\\s*\\n")) {
            if (!statement.isBlank()) {
                System.out.println("began " + System.currentTimeMillis());
                last = tables.executeSql(statement);
            }
        }
        if (last != null) {
            last.await();
        }
    }
}
