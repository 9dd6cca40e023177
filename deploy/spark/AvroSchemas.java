package headwater.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.avro.Schema;

/** The forms of a registry's schemas, asked for once a process. What it does not give is Python's to ask for, and to tell. */
final class AvroSchemas {
  /** A table's column that changes makes a schema; each is some 100 KB at the most. */
  private static final int MOST = 2_000;
  /** A registry that is away, or does not know an id yet, is not asked for each record. */
  private static final long AGAIN_NANOS = 10_000_000_000L;
  private static final Duration PATIENCE = Duration.ofSeconds(5);
  private static final int OK = 200;

  private final String url;
  private final String authorization;
  private final HttpClient client = HttpClient.newBuilder().connectTimeout(PATIENCE).build();
  private final Map<Integer, AvroForm> known = new ConcurrentHashMap<>();
  private final Map<Integer, Long> missed = new LinkedHashMap<>();

  AvroSchemas(String url, String user, String password) {
    this.url = url.replaceAll("/+$", "");
    byte[] pair = (user + ":" + password).getBytes(StandardCharsets.UTF_8);
    this.authorization = user == null ? null : "Basic " + Base64.getEncoder().encodeToString(pair);
  }

  /** The form of a schema's id; null if there is none now. */
  AvroForm form(int id) {
    AvroForm found = known.get(id);
    return found != null ? found : asked(id);
  }

  private synchronized AvroForm asked(int id) {
    AvroForm found = known.get(id);
    Long before = missed.get(id);
    if (found != null || before != null && System.nanoTime() - before < AGAIN_NANOS) {
      return found;
    }
    try {
      found = AvroForm.of(schema(id));
    } catch (IOException | RuntimeException error) {
      found = null;
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt(); // the task is being ended
    }
    if (known.size() >= MOST || missed.size() >= MOST) {
      known.clear();
      missed.clear();
    }
    if (found == null) {
      missed.put(id, System.nanoTime());
    } else {
      known.put(id, found);
    }
    return found;
  }

  private Schema schema(int id) throws IOException, InterruptedException {
    HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(url + "/schemas/ids/" + id)).timeout(PATIENCE);
    if (authorization != null) {
      request.header("Authorization", authorization);
    }
    HttpResponse<byte[]> answer = client.send(request.build(), HttpResponse.BodyHandlers.ofByteArray());
    if (answer.statusCode() != OK) {
      throw new IOException("the registry answers " + answer.statusCode());
    }
    JsonNode told = new ObjectMapper().readTree(answer.body());
    if (!told.path("schemaType").asText("AVRO").equals("AVRO")) {
      throw new IOException("the schema is not Avro");
    }
    return new Schema.Parser().setValidateDefaults(false).parse(told.path("schema").asText());
  }
}
