"""Kafka's remaining broker keys: threads, quotas, replication, remote storage, Java metrics.

A table of `accepted.py`, which says how it is read. Ottla knows these keys and does not act on
them.
"""

TABLE = """
alter.log.dirs.replication.quota.window.num | INT | 1..
  = 11
    Samples that the quota for moves between directories looks at.
alter.log.dirs.replication.quota.window.size.seconds | INT | 1..
  = 1
    Length of one sample of that quota.
auto.leader.rebalance.enable | BOOLEAN
  = true
    Whether leadership goes back to preferred replicas by itself.
background.threads | INT | 1.. | cluster
  = 10
    Threads for background work.
broker.heartbeat.interval.ms | INT
  = 2000
    How often a broker tells the controller that it lives.
broker.session.timeout.ms | INT
  = 9000
    Silence after which the controller takes a broker for dead.
client.quota.callback.class | CLASS
    Java class that sets the quotas of clients.
config.providers | LIST | | cluster
  =
    Names of providers that fill in values from elsewhere.
controlled.shutdown.enable | BOOLEAN
  = true
    Whether a broker hands over its partitions before it stops.
controller.performance.always.log.threshold.ms | LONG | 0.. | internal
  = 2000
    Time above which a controller event is always logged.
controller.performance.sample.period.ms | LONG | 100.. | internal
  = 60000
    How often the controller logs its own pace.
controller.quorum.append.linger.ms | INT | 0..
  = 25
    Wait that gathers metadata writes into one.
controller.quorum.auto.join.enable | BOOLEAN
  = false
    Whether a new controller joins the quorum by itself.
controller.quorum.election.backoff.max.ms | INT | 0..
  = 1000
    Longest wait between two elections.
controller.quorum.fetch.max.bytes | INT | 1..
  = 1048576
    Most metadata that is fetched at once.
controller.quorum.fetch.snapshot.max.bytes | INT | 1..
  = 1048576
    Most of a metadata snapshot that is fetched at once.
controller.quorum.request.timeout.ms | INT | 0..
  = 2000
    Longest wait for an answer inside the quorum.
controller.quorum.retry.backoff.ms | INT | 0..
  = 20
    Wait before a request inside the quorum is sent again.
controller.socket.timeout.ms | INT
  = 30000
    Longest wait on a connection from broker to controller.
delete.records.purgatory.purge.interval.requests | INT
  = 1
    Waiting DeleteRecords requests after which finished ones are dropped.
fetch.purgatory.purge.interval.requests | INT
  = 1000
    Waiting fetches after which finished ones are dropped.
follower.fetch.last.tiered.offset.enable | BOOLEAN | | cluster
  = false
    Whether an empty follower begins after what remote storage holds.
follower.replication.throttled.rate | LONG | 0.. | cluster runtime
  = 9223372036854775807
    Most bytes a second that a follower fetches for throttled replicas.
initial.broker.registration.timeout.ms | INT
  = 60000
    Longest that a new broker waits to be registered.
internal.metadata.delete.delay.millis | LONG | | internal
  = 60000
    Wait before a metadata file is deleted, for tests of Kafka.
internal.metadata.log.segment.bytes | INT | | internal
    Size of a metadata segment, for tests of Kafka.
internal.metadata.max.batch.size.in.bytes | INT | | internal
  = 8388608
    Largest batch of metadata records, for tests of Kafka.
kafka.metrics.polling.interval.secs | INT | 1..
  = 10
    How often Java metrics reporters are asked to report.
kafka.metrics.reporters | LIST
  =
    Java classes that report broker metrics.
leader.imbalance.check.interval.seconds | LONG | 1..
  = 300
    How often leadership is compared with the preferred replicas.
leader.replication.throttled.rate | LONG | 0.. | cluster runtime
  = 9223372036854775807
    Most bytes a second that a leader sends to throttled replicas.
log.dir.failure.timeout.ms | LONG | 1..
  = 30000
    Longest that a failed directory may stay unreported to the controller.
log.local.retention.bytes | LONG | -2.. | cluster
  = -2
    Size of a partition kept on local disk when older data is remote; -2 as log.retention.bytes.
log.local.retention.ms | LONG | -2.. | cluster
  = -2
    Age of data kept on local disk when older data is remote; -2 as log.retention.ms.
metadata.max.idle.interval.ms | INT | 0..
  = 500
    How often an idle controller writes a no-op record.
metric.reporters | LIST | | cluster
  = org.apache.kafka.common.metrics.JmxReporter
    Java classes that report metrics.
metrics.num.samples | INT | 1..
  = 2
    Samples that a Java metric looks at.
metrics.recording.level | STRING
  = INFO
    Level of detail of the Java metrics.
metrics.sample.window.ms | LONG | 1..
  = 30000
    Length of one sample of a Java metric.
num.io.threads | INT | 1.. | cluster
  = 8
    Threads that serve requests.
num.network.threads | INT | 1.. | cluster
  = 3
    Threads that serve connections.
num.replica.alter.log.dirs.threads | INT
    Threads that move replicas between directories.
num.replica.fetchers | INT | 1.. | cluster
  = 1
    Threads that fetch from each leader.
producer.purgatory.purge.interval.requests | INT
  = 1000
    Waiting produce requests after which finished ones are dropped.
queued.max.requests | INT | 1..
  = 500
    Requests that may wait for a thread.
remote.fetch.max.wait.ms | INT | 1.. | cluster
  = 500
    Longest that a fetch waits for remote storage.
remote.list.offsets.request.timeout.ms | LONG | 1.. | cluster
  = 30000
    Longest that ListOffsets waits for remote storage.
remote.log.index.file.cache.total.size.bytes | LONG | 1.. | cluster
  = 1073741824
    Disk space for indexes of remote segments.
remote.log.index.file.cache.ttl.ms | LONG | -1.. | internal
  = 900000
    How long the index of a remote segment is kept.
remote.log.manager.copier.thread.pool.size | INT | 1.. | cluster
  = 10
    Threads that copy segments to remote storage.
remote.log.manager.copy.max.bytes.per.second | LONG | 1.. | cluster
  = 9223372036854775807
    Most bytes a second that go to remote storage.
remote.log.manager.copy.quota.window.num | INT | 1..
  = 11
    Samples that this quota looks at.
remote.log.manager.copy.quota.window.size.seconds | INT | 1..
  = 1
    Length of one sample of the copy quota.
remote.log.manager.expiration.thread.pool.size | INT | 1.. | cluster
  = 10
    Threads that delete expired remote segments.
remote.log.manager.fetch.max.bytes.per.second | LONG | 1.. | cluster
  = 9223372036854775807
    Most bytes a second that come from remote storage.
remote.log.manager.fetch.quota.window.num | INT | 1..
  = 11
    Samples that this quota looks at.
remote.log.manager.fetch.quota.window.size.seconds | INT | 1..
  = 1
    Length of one sample of the fetch quota.
remote.log.manager.follower.thread.pool.size | INT | 1.. | cluster
  = 2
    Threads for followers' work on remote storage.
remote.log.manager.task.interval.ms | LONG | 1..
  = 30000
    How often remote storage work is done.
remote.log.manager.task.retry.backoff.max.ms | LONG | 1.. | internal
  = 30000
    Longest wait before failed remote work is tried again.
remote.log.manager.task.retry.backoff.ms | LONG | 1.. | internal
  = 500
    First wait before failed remote work is tried again.
remote.log.manager.task.retry.jitter | DOUBLE | 0..0.5 | internal
  = 0.2
    Share of that wait that is left to chance.
remote.log.manager.thread.pool.size | INT | 1..
  = 2
    Threads for remote storage work.
remote.log.metadata.custom.metadata.max.bytes | INT | 0..
  = 128
    Most bytes of a plugin's own metadata for a remote segment.
remote.log.metadata.manager.class.name | STRING
  = org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
    Java class that keeps the metadata of remote segments.
remote.log.metadata.manager.class.path | STRING
    Where that Java class is found.
remote.log.metadata.manager.impl.prefix | STRING
  = rlmm.config.
    Prefix of that class's own settings.
remote.log.metadata.manager.listener.name | STRING
    Listener by which that class reaches the brokers.
remote.log.reader.max.pending.tasks | INT | 1..
  = 100
    Reads of remote storage that may wait.
remote.log.reader.threads | INT | 1.. | cluster
  = 10
    Threads that read from remote storage.
remote.log.storage.manager.class.name | STRING
    Java class that stores remote segments.
remote.log.storage.manager.class.path | STRING
    Where that Java class is found.
remote.log.storage.manager.impl.prefix | STRING
  = rsm.config.
    Prefix of that class's own settings.
remote.log.storage.system.enable | BOOLEAN
  = false
    Whether topics may keep old data in remote storage.
replica.fetch.backoff.ms | INT | 0..
  = 1000
    Wait of a follower after a failed fetch.
replica.fetch.max.bytes | INT | 0..
  = 1048576
    Most bytes of one partition in a follower's fetch.
replica.fetch.min.bytes | INT
  = 1
    Bytes that a follower's fetch waits for.
replica.fetch.response.max.bytes | INT | 0..
  = 10485760
    Most bytes in the answer to a follower's fetch.
replica.fetch.wait.max.ms | INT
  = 500
    Longest that a follower's fetch waits.
replica.lag.time.max.ms | LONG
  = 30000
    How long a follower may lag before it leaves the in-sync set.
replica.selector.class | STRING
    Java class that names the replica a consumer reads from.
replica.socket.receive.buffer.bytes | INT
  = 65536
    SO_RCVBUF of a follower's connection.
replica.socket.timeout.ms | INT
  = 30000
    Longest that a follower waits for an answer.
replication.quota.window.num | INT | 1..
  = 11
    Samples that the replication quota looks at.
replication.quota.window.size.seconds | INT | 1..
  = 1
    Length of one sample of the replication quota.
request.timeout.ms | INT
  = 30000
    Longest that the broker waits for an answer to its own requests.
server.max.startup.time.ms | LONG | 0.. | internal
  = 9223372036854775807
    Longest that a start may take.
socket.connection.setup.timeout.max.ms | LONG
  = 30000
    Longest wait for a connection that the broker opens.
socket.connection.setup.timeout.ms | LONG
  = 10000
    First wait for a connection that the broker opens.
telemetry.max.bytes | INT | 1..
  = 1048576
    Most bytes of metrics that a client may push at once.
unclean.leader.election.interval.ms | LONG | 1.. | internal
  = 300000
    How often leaderless partitions are looked over for an unclean election.
unstable.api.versions.enable | BOOLEAN | | internal
  = false
    Whether unreleased API versions are served.
unstable.feature.versions.enable | BOOLEAN | | internal
  = false
    Whether unreleased feature levels may be used.
"""
