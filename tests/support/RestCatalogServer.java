import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.exceptions.AlreadyExistsException;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.NoSuchNamespaceException;
import org.apache.iceberg.exceptions.NoSuchTableException;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.CatalogHandlers;
import org.apache.iceberg.rest.RESTSerializers;
import org.apache.iceberg.rest.RESTUtil;
import org.apache.iceberg.rest.RESTCatalogProperties.SnapshotMode;
import org.apache.iceberg.rest.requests.CreateNamespaceRequest;
import org.apache.iceberg.rest.requests.CreateTableRequest;
import org.apache.iceberg.rest.requests.RenameTableRequest;
import org.apache.iceberg.rest.requests.UpdateTableRequest;
import org.apache.iceberg.rest.responses.ConfigResponse;
import org.apache.iceberg.rest.responses.ErrorResponse;
import org.apache.iceberg.shaded.com.fasterxml.jackson.annotation.JsonAutoDetect;
import org.apache.iceberg.shaded.com.fasterxml.jackson.annotation.PropertyAccessor;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.DeserializationFeature;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.PropertyNamingStrategies;

/**
 * A REST catalogue: Iceberg's own handlers of the protocol over a SQL catalogue, behind the JDK's HTTP server.
 *
 * <p>Arguments: port, bearer token that is asked for ("" for none), then the catalogue's properties as key=value. The
 * client credentials that it gives this token for are "client:secret".
 */
public final class RestCatalogServer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final JdbcCatalog CATALOG = new JdbcCatalog();
    private static String token;

    public static void main(String[] args) throws Exception {
        JSON.setVisibility(PropertyAccessor.FIELD, JsonAutoDetect.Visibility.ANY);
        JSON.configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false);
        JSON.setPropertyNamingStrategy(new PropertyNamingStrategies.KebabCaseStrategy());
        RESTSerializers.registerAll(JSON);
        token = args[1];
        Map<String, String> properties = new HashMap<>();
        for (int at = 2; at < args.length; at++) {
            String[] pair = args[at].split("=", 2);
            properties.put(pair[0], pair[1]);
        }
        CATALOG.initialize("rest", properties);
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])), 0);
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.createContext("/", RestCatalogServer::handle);
        server.start();
        System.out.println("ready");
    }

    private static void handle(HttpExchange call) throws IOException {
        try {
            Object answer = null;
            String path = call.getRequestURI().getRawPath();
            if (path.equals("/v1/oauth/tokens")) {
                String form = new String(call.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
                String basic = String.valueOf(call.getRequestHeaders().getFirst("Authorization"));
                boolean known = form.contains("client_secret=secret") || basic.startsWith("Basic ");
                answer = known
                        ? Map.of("access_token", token, "token_type", "bearer", "expires_in", 3600)
                        : Map.of("error", "invalid_client", "error_description", "unknown client");
                send(call, known ? 200 : 401, JSON.writeValueAsBytes(answer));
                return;
            }
            if (!token.isEmpty() && !("Bearer " + token).equals(call.getRequestHeaders().getFirst("Authorization"))) {
                fail(call, 401, "NotAuthorizedException", "the token is unknown");
                return;
            }
            answer = route(call, path.substring("/v1/".length()).split("/"));
            send(call, answer == null ? 204 : 200, answer == null ? null : JSON.writeValueAsBytes(answer));
        } catch (NoSuchTableException | NoSuchNamespaceException error) {
            fail(call, 404, error.getClass().getSimpleName(), error.getMessage());
        } catch (AlreadyExistsException | CommitFailedException error) {
            fail(call, 409, error.getClass().getSimpleName(), error.getMessage());
        } catch (IllegalArgumentException error) {
            fail(call, 400, "BadRequestException", error.getMessage());
        } catch (Exception error) {
            error.printStackTrace();
            fail(call, 500, error.getClass().getSimpleName(), String.valueOf(error.getMessage()));
        }
    }

    private static Object route(HttpExchange call, String[] path) throws IOException {
        String verb = call.getRequestMethod();
        if (path[0].equals("config")) {
            return ConfigResponse.builder().build();
        }
        if (path[0].equals("tables")) {
            CatalogHandlers.renameTable(CATALOG, read(call, RenameTableRequest.class));
            return null;
        }
        if (path.length == 1) {
            return verb.equals("POST")
                    ? CatalogHandlers.createNamespace(CATALOG, read(call, CreateNamespaceRequest.class))
                    : CatalogHandlers.listNamespaces(CATALOG, Namespace.empty());
        }
        Namespace namespace = RESTUtil.decodeNamespace(path[1], "%1F");
        if (path.length == 2) {
            if (verb.equals("DELETE")) {
                CatalogHandlers.dropNamespace(CATALOG, namespace);
                return null;
            }
            return CatalogHandlers.loadNamespace(CATALOG, namespace);
        }
        if (path.length == 3) {
            if (!verb.equals("POST")) {
                return CatalogHandlers.listTables(CATALOG, namespace);
            }
            CreateTableRequest made = read(call, CreateTableRequest.class);
            return made.stageCreate()
                    ? CatalogHandlers.stageTableCreate(CATALOG, namespace, made)
                    : CatalogHandlers.createTable(CATALOG, namespace, made);
        }
        TableIdentifier table =
                TableIdentifier.of(namespace, URLDecoder.decode(path[3], StandardCharsets.UTF_8));
        if (verb.equals("POST")) {
            return CatalogHandlers.updateTable(CATALOG, table, read(call, UpdateTableRequest.class));
        }
        if (verb.equals("DELETE")) {
            if (String.valueOf(call.getRequestURI().getQuery()).toLowerCase().contains("purgerequested=true")) {
                CatalogHandlers.purgeTable(CATALOG, table);
            } else {
                CatalogHandlers.dropTable(CATALOG, table);
            }
            return null;
        }
        return CatalogHandlers.loadTable(CATALOG, table, SnapshotMode.ALL);
    }

    private static <T> T read(HttpExchange call, Class<T> type) throws IOException {
        return JSON.readValue(call.getRequestBody(), type);
    }

    private static void fail(HttpExchange call, int code, String type, String why) throws IOException {
        send(call, code, JSON.writeValueAsBytes(
                ErrorResponse.builder().responseCode(code).withType(type).withMessage(why).build()));
    }

    private static void send(HttpExchange call, int code, byte[] body) throws IOException {
        boolean silent = body == null || call.getRequestMethod().equals("HEAD");
        call.getResponseHeaders().set("Content-Type", "application/json");
        call.sendResponseHeaders(code, silent ? -1 : body.length);
        if (!silent) {
            call.getResponseBody().write(body);
        }
        call.close();
    }
}
