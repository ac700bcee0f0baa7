"""Kafka's keys for groups, committed offsets and transactions.

A table of `accepted.py`, which says how it is read. Ottla knows these keys and does not act on
them.
"""

TABLE = """
add.partitions.to.txn.retry.backoff.ms | INT | 1..
  = 20
    Wait before adding a partition to a transaction is tried again.
group.coordinator.append.linger.ms | INT | -1..
  = -1
    Wait that gathers a group's writes into one; -1 lets the coordinator choose.
group.coordinator.background.threads | INT | 1..
  = 2
    Threads for the group coordinator's background work.
group.coordinator.cached.buffer.max.bytes | INT | 524288.. | cluster
  = 1048588
    Largest write buffer that the group coordinator keeps.
group.coordinator.threads | INT | 1..
  = 4
    Threads of the group coordinator.
group.share.persister.class.name | STRING | | internal
  = org.apache.kafka.server.share.persister.DefaultStatePersister
    Java class that keeps the state of share groups.
group.streams.assignment.interval.ms | INT | 0.. | cluster
  = 1000
    Least time between two assignments of a streams group.
group.streams.heartbeat.interval.ms | INT | 1..
  = 5000
    How often members of a streams group are asked to report.
group.streams.initial.rebalance.delay.ms | INT | 0..
  = 3000
    Wait for more members before a new streams group is first assigned.
group.streams.max.assignment.interval.ms | INT | 0..
  = 15000
    Most that a streams group may set as its assignment interval.
group.streams.max.heartbeat.interval.ms | INT | 1..
  = 15000
    Most that a streams group may set as its heartbeat interval.
group.streams.max.session.timeout.ms | INT | 1..
  = 60000
    Most that a streams group may set as its session timeout.
group.streams.max.size | INT | 1..
  = 2147483647
    Most members of a streams group.
group.streams.max.standby.replicas | INT | 0..
  = 2
    Most standby replicas that a streams group may ask for.
group.streams.min.assignment.interval.ms | INT | 0..
  = 0
    Least that a streams group may set as its assignment interval.
group.streams.min.heartbeat.interval.ms | INT | 1..
  = 5000
    Least that a streams group may set as its heartbeat interval.
group.streams.min.session.timeout.ms | INT | 1..
  = 45000
    Least that a streams group may set as its session timeout.
group.streams.num.standby.replicas | INT | 0..
  = 0
    Standby replicas of each task of a streams group.
group.streams.session.timeout.ms | INT | 1..
  = 45000
    Silence after which a member of a streams group is dropped.
offsets.load.buffer.size | INT | 1..
  = 5242880
    Bytes of the offsets topic that are read at once when a group is loaded.
share.coordinator.append.linger.ms | INT | -1..
  = -1
    Wait that gathers share group writes into one; -1 lets the coordinator choose.
share.coordinator.cached.buffer.max.bytes | INT | 524288.. | cluster
  = 1048588
    Largest write buffer that the share coordinator keeps.
share.coordinator.load.buffer.size | INT | 1..
  = 5242880
    Bytes of the share state topic that are read at once when it is loaded.
share.coordinator.threads | INT | 1..
  = 1
    Threads of the share coordinator.
share.fetch.purgatory.purge.interval.requests | INT
  = 1000
    Waiting share fetches after which finished ones are dropped.
transaction.state.log.load.buffer.size | INT | 1..
  = 5242880
    Bytes of the transaction topic that are read at once when it is loaded.
transaction.two.phase.commit.enable | BOOLEAN
  = false
    Whether a transaction may be part of a two-phase commit led elsewhere.
"""
