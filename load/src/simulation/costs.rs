//! The cost of each step on a machine of a cluster.

/// Measured costs: processor time in microseconds, memory and messages in bytes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Costs {
    /// Waking a thread for requests, independent of their number.
    pub wake_us: f64,
    /// Judging a publish and answering it over HTTP, on the sequencer, without applying it.
    pub judge_us: f64,
    /// Passing a group of judged records to the log, on the sequencer.
    pub append_us: f64,
    /// The part of `append_us` that the command processor does.
    pub processor_append_us: f64,
    /// Reading a group of records back, on every node.
    pub read_us: f64,
    /// Decoding and applying one record of a group, on every node.
    pub apply_us: f64,
    /// The part of judging and applying a record that the command processor does, on its one thread.
    pub processor_us: f64,
    /// Storing a group of records, and sending it to a node, on the broker.
    pub broker_us: f64,
    /// The median time until a group is stored, besides the broker's processor time.
    pub commit_us: f64,
    /// The standard deviation of the logarithm of `commit_us`.
    pub commit_spread: f64,
    /// Delivering a post to an inbox.
    pub delivery_us: f64,
    /// Sending a message to a live client.
    pub message_us: f64,
    /// Answering a page over HTTP.
    pub page_us: f64,
    /// Forwarding a request to another node, without answering it there.
    pub pass_us: f64,
    /// Sending a request and reading its answer, on a client.
    pub client_us: f64,
    /// The time from one machine to another.
    pub hop_us: f64,
    /// The cores that a node uses without load.
    pub idle_cores: f64,
    /// A user with the first edge, without an inbox.
    pub user_bytes: f64,
    /// A follow edge of a user.
    pub edge_bytes: f64,
    /// A post in memory.
    pub post_bytes: f64,
    /// An awake reader with a full inbox.
    pub reader_bytes: f64,
    /// A live connection.
    pub connection_bytes: f64,
    /// A publish in the log.
    pub event_bytes: f64,
    /// A page of 20 entries as an answer.
    pub page_bytes: f64,
    /// A live message with a post.
    pub message_bytes: f64,
    /// The bytes of a snapshot as a share of the memory.
    pub snapshot_share: f64,
}

/// The costs measured on the machine of docs/scale.md.
pub const MEASURED: Costs = Costs {
    wake_us: 40.0,
    judge_us: 18.0,
    append_us: 70.0,
    processor_append_us: 15.0,
    read_us: 115.0,
    apply_us: 22.0,
    processor_us: 4.0,
    broker_us: 55.0,
    commit_us: 170.0,
    commit_spread: 0.9,
    delivery_us: 0.1,
    message_us: 12.8,
    page_us: 11.0,
    pass_us: 30.0,
    client_us: 9.0,
    hop_us: 50.0,
    idle_cores: 0.023,
    user_bytes: 236.0,
    edge_bytes: 30.0,
    post_bytes: 600.0,
    reader_bytes: 3_300.0,
    connection_bytes: 5_900.0,
    event_bytes: 269.0,
    page_bytes: 6_000.0,
    message_bytes: 400.0,
    snapshot_share: 0.47,
};
