"""The broker's settings for transactions; `BrokerConfig` has them as its own fields."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from ottla.config.keys import Bool, Dynamic, Int, Short, key


class TransactionConfig(BaseModel):
    """Kafka's transaction.* keys that Ottla acts on."""

    model_config = ConfigDict(defer_build=True)

    add_partitions_to_txn_retry_backoff_max_ms: Int = key(
        100,
        "Longest that a request waits for the end of the transaction before.",
        at_least=0,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: Int = key(
        10_000, "How often transactions that ran out of time are aborted.", at_least=1
    )
    transaction_max_timeout_ms: Int = key(
        900_000, "Longest timeout that a transaction may ask for.", at_least=1
    )
    transaction_partition_verification_enable: Bool = key(
        True,
        "Whether a transactional write is refused if its partition was not added.",
        dynamic=Dynamic.CLUSTER,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: Int = key(
        3_600_000, "How often expired transactional ids are removed.", at_least=1
    )
    transaction_state_log_min_isr: Int = key(
        2, "In-sync replicas that a write to the transaction topic needs.", at_least=1
    )
    transaction_state_log_num_partitions: Int = key(
        50, "Partitions of the transaction topic.", at_least=1
    )
    transaction_state_log_replication_factor: Short = key(
        3, "Replicas of the transaction topic; never more than there are brokers.", at_least=1
    )
    transaction_state_log_segment_bytes: Int = key(
        104_857_600, "Segment size of the transaction topic.", at_least=1
    )
    transactional_id_expiration_ms: Int = key(
        604_800_000, "Silence after which a transactional id is forgotten.", at_least=1
    )
