"""The one table from API to handler."""

from __future__ import annotations

from ottla.broker.handlers import (
    api_versions,
    brokers,
    client_quotas,
    committed_offsets,
    config_resources,
    configs,
    consumer_groups,
    coordinators,
    features,
    fetch,
    groups,
    log_dirs,
    metadata,
    offsets,
    partition_changes,
    produce,
    producer_ids,
    producers,
    quorum,
    scram,
    share_acknowledge,
    share_fetch,
    share_groups,
    share_offsets,
    share_state,
    topics,
    transactional_offsets,
    transactions,
)
from ottla.broker.handlers.refusing import refusing
from ottla.broker.handlers.table import Entry, Handler
from ottla.protocol.api import SERVED, ApiKey

_HANDLERS: dict[ApiKey, Handler] = {
    ApiKey.PRODUCE: produce.handle_produce,
    ApiKey.FETCH: fetch.handle_fetch,
    ApiKey.LIST_OFFSETS: offsets.handle_list_offsets,
    ApiKey.METADATA: metadata.handle_metadata,
    ApiKey.OFFSET_COMMIT: committed_offsets.handle_offset_commit,
    ApiKey.OFFSET_FETCH: committed_offsets.handle_offset_fetch,
    ApiKey.FIND_COORDINATOR: coordinators.handle_find_coordinator,
    ApiKey.JOIN_GROUP: groups.handle_join_group,
    ApiKey.HEARTBEAT: groups.handle_heartbeat,
    ApiKey.LEAVE_GROUP: groups.handle_leave_group,
    ApiKey.SYNC_GROUP: groups.handle_sync_group,
    ApiKey.DESCRIBE_GROUPS: groups.handle_describe_groups,
    ApiKey.LIST_GROUPS: groups.handle_list_groups,
    ApiKey.API_VERSIONS: api_versions.handle_api_versions,
    ApiKey.CREATE_TOPICS: topics.handle_create_topics,
    ApiKey.DELETE_TOPICS: topics.handle_delete_topics,
    ApiKey.DELETE_RECORDS: offsets.handle_delete_records,
    ApiKey.INIT_PRODUCER_ID: producer_ids.handle_init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offsets.handle_offset_for_leader_epoch,
    ApiKey.ADD_PARTITIONS_TO_TXN: transactions.handle_add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: transactions.handle_add_offsets_to_txn,
    ApiKey.END_TXN: transactions.handle_end_txn,
    ApiKey.WRITE_TXN_MARKERS: transactions.handle_write_txn_markers,
    ApiKey.TXN_OFFSET_COMMIT: transactional_offsets.handle_txn_offset_commit,
    ApiKey.DESCRIBE_CONFIGS: configs.handle_describe_configs,
    ApiKey.ALTER_CONFIGS: configs.handle_alter_configs,
    ApiKey.ALTER_REPLICA_LOG_DIRS: log_dirs.handle_alter_replica_log_dirs,
    ApiKey.DESCRIBE_LOG_DIRS: log_dirs.handle_describe_log_dirs,
    ApiKey.CREATE_PARTITIONS: topics.handle_create_partitions,
    ApiKey.DELETE_GROUPS: share_groups.handle_delete_groups,
    ApiKey.ELECT_LEADERS: partition_changes.handle_elect_leaders,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.handle_incremental_alter_configs,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: partition_changes.handle_alter_partition_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: partition_changes.handle_list_partition_reassignments,
    ApiKey.OFFSET_DELETE: committed_offsets.handle_offset_delete,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: client_quotas.handle_describe_client_quotas,
    ApiKey.ALTER_CLIENT_QUOTAS: client_quotas.handle_alter_client_quotas,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: scram.handle_describe_user_scram_credentials,
    ApiKey.DESCRIBE_QUORUM: quorum.handle_describe_quorum,
    ApiKey.UPDATE_FEATURES: features.handle_update_features,
    ApiKey.DESCRIBE_CLUSTER: metadata.handle_describe_cluster,
    ApiKey.DESCRIBE_PRODUCERS: producers.handle_describe_producers,
    ApiKey.UNREGISTER_BROKER: brokers.handle_unregister_broker,
    ApiKey.DESCRIBE_TRANSACTIONS: transactions.handle_describe_transactions,
    ApiKey.LIST_TRANSACTIONS: transactions.handle_list_transactions,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: consumer_groups.handle_consumer_group_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_groups.handle_consumer_group_describe,
    ApiKey.LIST_CONFIG_RESOURCES: config_resources.handle_list_config_resources,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: metadata.handle_describe_topic_partitions,
    ApiKey.SHARE_GROUP_HEARTBEAT: share_groups.handle_share_group_heartbeat,
    ApiKey.SHARE_GROUP_DESCRIBE: share_groups.handle_share_group_describe,
    ApiKey.SHARE_FETCH: share_fetch.handle_share_fetch,
    ApiKey.SHARE_ACKNOWLEDGE: share_acknowledge.handle_share_acknowledge,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: share_state.handle_initialize_share_group_state,
    ApiKey.READ_SHARE_GROUP_STATE: share_state.handle_read_share_group_state,
    ApiKey.WRITE_SHARE_GROUP_STATE: share_state.handle_write_share_group_state,
    ApiKey.DELETE_SHARE_GROUP_STATE: share_state.handle_delete_share_group_state,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: share_state.handle_read_share_group_state_summary,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: share_offsets.handle_describe_share_group_offsets,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: share_offsets.handle_alter_share_group_offsets,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: share_offsets.handle_delete_share_group_offsets,
}

HANDLERS = {key: refusing(SERVED[key], handle) for key, handle in _HANDLERS.items()}
"""No error that a handler raises is without an answer: what has no place for it at its top names
it for each thing that was asked."""


def build_table() -> dict[int, Entry]:
    """Entries of one broker; they carry its counters, so each broker builds its own."""
    assert HANDLERS.keys() == SERVED.keys(), "advertised and served are the same set"
    return {int(key): Entry(SERVED[key], handle) for key, handle in HANDLERS.items()}
