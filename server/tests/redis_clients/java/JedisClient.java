import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.BiConsumer;

import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisAccessControlException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.util.KeyValue;

final class JedisClient implements Client {
    private final RedisClient client;

    JedisClient(int port, String key, int protocol) {
        var config = DefaultJedisClientConfig.builder().password(key).socketTimeoutMillis(Check.DEADLINE_MS);
        if (protocol != 0) config.protocol(protocol == 2 ? RedisProtocol.RESP2 : RedisProtocol.RESP3);
        client = RedisClient.builder().hostAndPort("127.0.0.1", port).clientConfig(config.build()).build();
    }

    private static CommandArguments arguments(String[] words) {
        ProtocolCommand name = words[0]::getBytes;
        return new CommandArguments(name).addObjects((Object[]) Arrays.copyOfRange(words, 1, words.length));
    }

    @Override
    public Object call(String... words) {
        var reply = client.executeCommand(arguments(words));
        return reply instanceof byte[] bytes ? new String(bytes) : reply;
    }

    @Override
    public List<String> pipeline(List<String[]> commands) {
        try (var pipeline = client.pipelined()) {
            var replies = new ArrayList<Response<Object>>();
            for (var words : commands) replies.add(pipeline.sendCommand(arguments(words)));
            pipeline.sync();
            return replies.stream().map(reply -> new String((byte[]) reply.get())).toList();
        }
    }

    @Override
    public AutoCloseable subscribe(String channel, BiConsumer<String, String> receiver) {
        var subscription = new JedisPubSub() {
            @Override
            public void onMessage(String channel, String message) {
                receiver.accept(channel, message);
            }
        };
        var thread = new Thread(() -> client.subscribe(subscription, channel));
        thread.setDaemon(true);
        thread.start();
        return () -> {
            subscription.unsubscribe();
            thread.join(Check.DEADLINE_MS);
        };
    }

    @Override
    public boolean isMap(Object reply) {
        return ((List<?>) reply).get(0) instanceof KeyValue;
    }

    @Override
    public Class<?> error() {
        return JedisDataException.class;
    }

    @Override
    public Class<?> authenticationError() {
        return JedisAccessControlException.class;
    }

    @Override
    public void close() {
        client.close();
    }
}
