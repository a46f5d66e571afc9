import java.util.List;
import java.util.function.BiConsumer;

/** The parts of a client that the check uses. */
interface Client extends AutoCloseable {
    /** Executes a command on a connection of the client's pool. */
    Object call(String... words) throws Exception;

    /** Executes commands as one pipeline. */
    List<String> pipeline(List<String[]> commands) throws Exception;

    /** Subscribes to a channel on a connection of its own. The receiver gets channels and messages. */
    AutoCloseable subscribe(String channel, BiConsumer<String, String> receiver) throws Exception;

    /** Returns true if a reply is a map of RESP3. */
    boolean isMap(Object reply);

    /** The errors of commands, and of connections with a wrong key. */
    Class<?> error();

    Class<?> authenticationError();

    @Override
    void close();

    /** Creates a client, with `protocol` 0 for that of the client's own choice. */
    interface Factory {
        Client create(String key, int protocol);
    }
}
