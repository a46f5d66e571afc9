import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;

/** Jedis and Lettuce as they are released, against a server. Arguments: PORT [KEY]. */
final class Check {
    /** Milliseconds until a missing reply or message is an error. */
    static final int DEADLINE_MS = 30_000;

    private final Client client;

    private Check(Client client) {
        this.client = client;
    }

    private static void equal(String what, Object found, Object expected) {
        if (!Objects.equals(found, expected)) {
            throw new AssertionError(what + ": expected " + expected + ", found " + found);
        }
    }

    private static void refused(Class<?> error, String text, Callable<?> command) {
        Object reply;
        try {
            reply = command.call();
        } catch (Exception failure) {
            // A connection that failed wraps the error of the server.
            for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
                if (error.isInstance(cause) && cause.getMessage().startsWith(text)) return;
            }
            throw new AssertionError("expected " + text + error, failure);
        }
        throw new AssertionError("expected " + text + error + ", found " + reply);
    }

    private JsonObject json(String... words) throws Exception {
        return JsonParser.parseString((String) client.call(words)).getAsJsonObject();
    }

    private JsonElement publish(String text) throws Exception {
        return json("FEED.POST", "bob", "{\"text\":\"" + text + "\"}", "WAIT");
    }

    private List<JsonElement> read(int count) throws Exception {
        var items = json("FEED.GET", "ann", "COUNT", Integer.toString(count)).getAsJsonArray("items").asList();
        return items.stream().map(item -> item.getAsJsonObject().get("post")).toList();
    }

    /** The messages of a channel, of which the first is `hello`. */
    private final class Subscription implements AutoCloseable {
        private final LinkedBlockingQueue<JsonObject> messages = new LinkedBlockingQueue<>();
        private final AutoCloseable connection;
        final JsonObject hello;

        Subscription(String channel) throws Exception {
            connection = client.subscribe(channel, (of, message) -> {
                if (of.equals(channel)) messages.add(JsonParser.parseString(message).getAsJsonObject());
            });
            hello = next();
            equal("first message", hello.get("type").getAsString(), "hello");
        }

        JsonObject next() throws Exception {
            var message = messages.poll(DEADLINE_MS, TimeUnit.MILLISECONDS);
            return Objects.requireNonNull(message, "a message is missing");
        }

        JsonElement nextPost() throws Exception {
            return next().getAsJsonObject("item").get("post");
        }

        @Override
        public void close() throws Exception {
            connection.close();
        }
    }

    private void commands(boolean isResp3) throws Exception {
        json("FEED.FOLLOW", "ann", "bob");
        var newest = publish("hi");
        equal("newest entry", read(1), List.of(newest));
        equal("map of RESP3", client.isMap(client.call("FEED.GET", "ann", "AS", "ARRAY")), isResp3);

        var bodies = IntStream.range(0, 100).mapToObj(Integer::toString).toList();
        var replies = client.pipeline(bodies.stream().map(body -> new String[] {"FEED.POST", "bob", body, "WAIT"}).toList());
        var published = new ArrayList<>(replies.stream().map(JsonParser::parseString).toList());
        equal("replies of a pipeline", published.stream().map(post -> post.getAsJsonObject().get("body").getAsString()).toList(), bodies);
        Collections.reverse(published);
        equal("posts of a pipeline", read(100), published);
        refused(client.error(), "INVALID_PARAMETER ", () -> read(101));

        var threads = Executors.newFixedThreadPool(8);
        var pages = threads.invokeAll(Collections.nCopies(200, () -> read(1)));
        threads.shutdown();
        for (var page : pages) equal("page read at once", page.get(), published.subList(0, 1));
    }

    private void channel() throws Exception {
        String position;
        try (var subscription = new Subscription("feed:ann")) {
            var first = publish("first");
            var message = subscription.next();
            equal("message", message.getAsJsonObject("item").get("post"), first);
            position = subscription.hello.get("epoch").getAsString() + ":" + message.get("seq");
        }
        var missed = new ArrayList<>(List.of(publish("second"), publish("third")));
        try (var subscription = new Subscription("feed:ann " + position)) {
            equal("recovered", subscription.hello.get("recovered").getAsBoolean(), true);
            // Nothing else comes before a later post.
            missed.add(publish("fourth"));
            for (var post : missed) equal("message after the position", subscription.nextPost(), post);
        }
    }

    private static void check(String name, String key, Client.Factory factory) throws Exception {
        for (var protocol : new int[] {0, 2, 3}) {
            try (var client = factory.create(key, protocol)) {
                var check = new Check(client);
                check.commands(protocol != 2);
                check.channel();
            }
            if (key != null) {
                try (var stranger = factory.create("wrong", protocol)) {
                    refused(stranger.authenticationError(), "WRONGPASS ", () -> stranger.call("PING"));
                }
            }
            System.out.println(name + ", " + (protocol == 0 ? "default protocol" : "RESP" + protocol) + ": ok");
        }
    }

    public static void main(String[] arguments) throws Exception {
        var port = Integer.parseInt(arguments[0]);
        var key = arguments.length > 1 ? arguments[1] : null;
        check("Jedis", key, (each, protocol) -> new JedisClient(port, each, protocol));
        check("Lettuce", key, (each, protocol) -> new LettuceClient(port, each, protocol));
    }
}
