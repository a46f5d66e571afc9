import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.BiConsumer;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.CommandOutput;
import io.lettuce.core.output.ObjectOutput;
import io.lettuce.core.output.StatusOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.support.ConnectionPoolSupport;
import org.apache.commons.pool2.impl.GenericObjectPool;
import org.apache.commons.pool2.impl.GenericObjectPoolConfig;

final class LettuceClient implements Client {
    private final RedisClient client;
    private final GenericObjectPool<StatefulRedisConnection<String, String>> pool;

    LettuceClient(int port, String key, int protocol) {
        var address = RedisURI.builder().withHost("127.0.0.1").withPort(port).withTimeout(Duration.ofMillis(Check.DEADLINE_MS));
        if (key != null) address.withPassword(key.toCharArray());
        client = RedisClient.create(address.build());
        if (protocol != 0) {
            var version = protocol == 2 ? ProtocolVersion.RESP2 : ProtocolVersion.RESP3;
            client.setOptions(ClientOptions.builder().protocolVersion(version).build());
        }
        pool = ConnectionPoolSupport.createGenericObjectPool(client::connect, new GenericObjectPoolConfig<>());
    }

    private static <T> CompletableFuture<T> send(
        StatefulRedisConnection<String, String> connection, CommandOutput<String, String, T> output, String... words) {
        var arguments = new CommandArgs<>(StringCodec.UTF8).addKeys(Arrays.copyOfRange(words, 1, words.length));
        var reply = connection.async().dispatch(words[0]::getBytes, output, arguments);
        return reply.toCompletableFuture().orTimeout(Check.DEADLINE_MS, TimeUnit.MILLISECONDS);
    }

    @Override
    public Object call(String... words) throws Exception {
        var isArray = words[words.length - 1].equals("ARRAY");
        try (var connection = pool.borrowObject()) {
            CommandOutput<String, String, ?> output = isArray ? new ObjectOutput<>(StringCodec.UTF8) : new StatusOutput<>(StringCodec.UTF8);
            return send(connection, output, words).join();
        }
    }

    /** Uses a connection that is not in the pool, because it does not send each command at once. */
    @Override
    public List<String> pipeline(List<String[]> commands) throws Exception {
        try (var connection = client.connect()) {
            connection.setAutoFlushCommands(false);
            var replies = commands.stream().map(words -> send(connection, new StatusOutput<>(StringCodec.UTF8), words)).toList();
            connection.flushCommands();
            return replies.stream().map(CompletableFuture::join).toList();
        }
    }

    @Override
    public AutoCloseable subscribe(String channel, BiConsumer<String, String> receiver) {
        var connection = client.connectPubSub();
        connection.addListener(new RedisPubSubAdapter<>() {
            @Override
            public void message(String channel, String message) {
                receiver.accept(channel, message);
            }
        });
        connection.sync().subscribe(channel);
        return connection;
    }

    @Override
    public boolean isMap(Object reply) {
        return reply instanceof Map;
    }

    @Override
    public Class<?> error() {
        return RedisCommandExecutionException.class;
    }

    /** This client has one class for all errors of a server. */
    @Override
    public Class<?> authenticationError() {
        return RedisCommandExecutionException.class;
    }

    @Override
    public void close() {
        pool.close();
        client.shutdown();
    }
}
