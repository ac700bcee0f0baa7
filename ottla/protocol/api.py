"""The APIs of Kafka, and the table of those that are served.

`SERVED` is what the client listener answers and advertises; an API is served completely or is
absent from it. Version ranges are Apache Kafka 4.3's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ottla.protocol.messages import (
    api_versions,
    broker_lifecycle,
    configs,
    consumer_group,
    features,
    fetch,
    groups,
    log_dirs,
    metadata,
    offsets,
    produce,
    producer_ids,
    quorum,
    quotas,
    scram,
    share_group,
    share_state,
    topics,
    transactions,
)
from ottla.protocol.schema import VERSION_MAX, Message


class ApiKey(IntEnum):
    """Every API by Kafka's name, those of brokers and controllers included."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


@dataclass(slots=True, frozen=True)
class Api:
    """One served API. Below `min_version` no request is decoded, whatever is advertised."""

    key: ApiKey
    request: type[Message]
    response: type[Message]
    min_version: int
    max_version: int
    first_flexible: int
    advertised_min_version: int


def _api(
    key: ApiKey,
    request: type[Message],
    response: type[Message],
    *,
    advertised_min_version: int | None = None,
    max_version: int | None = None,
) -> Api:
    versions = request.__schema__.versions
    first = versions.first if advertised_min_version is None else advertised_min_version
    return Api(
        key=key,
        request=request,
        response=response,
        min_version=versions.first,
        max_version=versions.last if max_version is None else max_version,
        first_flexible=FIRST_FLEXIBLE.get(key, VERSION_MAX),
        advertised_min_version=first,
    )


# The first version whose header and body are flexible; an API that is not here has none.
FIRST_FLEXIBLE: Final[dict[int, int]] = {
    ApiKey.PRODUCE: 9,
    ApiKey.FETCH: 12,
    ApiKey.LIST_OFFSETS: 6,
    ApiKey.METADATA: 9,
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.OFFSET_FETCH: 6,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.JOIN_GROUP: 6,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 4,
    ApiKey.SYNC_GROUP: 4,
    ApiKey.DESCRIBE_GROUPS: 5,
    ApiKey.LIST_GROUPS: 3,
    ApiKey.API_VERSIONS: 3,
    ApiKey.CREATE_TOPICS: 5,
    ApiKey.DELETE_TOPICS: 4,
    ApiKey.DELETE_RECORDS: 2,
    ApiKey.INIT_PRODUCER_ID: 2,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 3,
    ApiKey.END_TXN: 3,
    ApiKey.WRITE_TXN_MARKERS: 1,
    ApiKey.TXN_OFFSET_COMMIT: 3,
    ApiKey.DESCRIBE_ACLS: 2,
    ApiKey.CREATE_ACLS: 2,
    ApiKey.DELETE_ACLS: 2,
    ApiKey.DESCRIBE_CONFIGS: 4,
    ApiKey.ALTER_CONFIGS: 2,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 2,
    ApiKey.DESCRIBE_LOG_DIRS: 2,
    ApiKey.SASL_AUTHENTICATE: 2,
    ApiKey.CREATE_PARTITIONS: 2,
    ApiKey.CREATE_DELEGATION_TOKEN: 2,
    ApiKey.RENEW_DELEGATION_TOKEN: 2,
    ApiKey.EXPIRE_DELEGATION_TOKEN: 2,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: 2,
    ApiKey.DELETE_GROUPS: 2,
    ApiKey.ELECT_LEADERS: 2,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: 0,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: 1,
    ApiKey.ALTER_CLIENT_QUOTAS: 1,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: 0,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 0,
    ApiKey.VOTE: 0,
    ApiKey.BEGIN_QUORUM_EPOCH: 1,
    ApiKey.END_QUORUM_EPOCH: 1,
    ApiKey.DESCRIBE_QUORUM: 0,
    ApiKey.ALTER_PARTITION: 0,
    ApiKey.UPDATE_FEATURES: 0,
    ApiKey.ENVELOPE: 0,
    ApiKey.FETCH_SNAPSHOT: 0,
    ApiKey.DESCRIBE_CLUSTER: 0,
    ApiKey.DESCRIBE_PRODUCERS: 0,
    ApiKey.BROKER_REGISTRATION: 0,
    ApiKey.BROKER_HEARTBEAT: 0,
    ApiKey.UNREGISTER_BROKER: 0,
    ApiKey.DESCRIBE_TRANSACTIONS: 0,
    ApiKey.LIST_TRANSACTIONS: 0,
    ApiKey.ALLOCATE_PRODUCER_IDS: 0,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 0,
    ApiKey.CONSUMER_GROUP_DESCRIBE: 0,
    ApiKey.CONTROLLER_REGISTRATION: 0,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: 0,
    ApiKey.PUSH_TELEMETRY: 0,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: 0,
    ApiKey.LIST_CONFIG_RESOURCES: 0,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: 0,
    ApiKey.SHARE_GROUP_HEARTBEAT: 0,
    ApiKey.SHARE_GROUP_DESCRIBE: 0,
    ApiKey.SHARE_FETCH: 0,
    ApiKey.SHARE_ACKNOWLEDGE: 0,
    ApiKey.ADD_RAFT_VOTER: 0,
    ApiKey.REMOVE_RAFT_VOTER: 0,
    ApiKey.UPDATE_RAFT_VOTER: 0,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: 0,
    ApiKey.READ_SHARE_GROUP_STATE: 0,
    ApiKey.WRITE_SHARE_GROUP_STATE: 0,
    ApiKey.DELETE_SHARE_GROUP_STATE: 0,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: 0,
    ApiKey.STREAMS_GROUP_HEARTBEAT: 0,
    ApiKey.STREAMS_GROUP_DESCRIBE: 0,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: 0,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: 0,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: 0,
}

# Produce 0 to 2 are advertised and refused, as Kafka does: librdkafka needs to see them
# (KAFKA-18659). InitProducerId 6 (two-phase commit) is unstable in 4.3 and not advertised.
SERVED: Final[dict[int, Api]] = {
    api.key: api
    for api in (
        _api(
            ApiKey.PRODUCE,
            produce.ProduceRequest,
            produce.ProduceResponse,
            advertised_min_version=0,
        ),
        _api(ApiKey.FETCH, fetch.FetchRequest, fetch.FetchResponse),
        _api(ApiKey.LIST_OFFSETS, offsets.ListOffsetsRequest, offsets.ListOffsetsResponse),
        _api(ApiKey.METADATA, metadata.MetadataRequest, metadata.MetadataResponse),
        _api(ApiKey.OFFSET_COMMIT, groups.OffsetCommitRequest, groups.OffsetCommitResponse),
        _api(ApiKey.OFFSET_FETCH, groups.OffsetFetchRequest, groups.OffsetFetchResponse),
        _api(
            ApiKey.FIND_COORDINATOR, groups.FindCoordinatorRequest, groups.FindCoordinatorResponse
        ),
        _api(ApiKey.JOIN_GROUP, groups.JoinGroupRequest, groups.JoinGroupResponse),
        _api(ApiKey.HEARTBEAT, groups.HeartbeatRequest, groups.HeartbeatResponse),
        _api(ApiKey.LEAVE_GROUP, groups.LeaveGroupRequest, groups.LeaveGroupResponse),
        _api(ApiKey.SYNC_GROUP, groups.SyncGroupRequest, groups.SyncGroupResponse),
        _api(ApiKey.DESCRIBE_GROUPS, groups.DescribeGroupsRequest, groups.DescribeGroupsResponse),
        _api(ApiKey.LIST_GROUPS, groups.ListGroupsRequest, groups.ListGroupsResponse),
        _api(
            ApiKey.API_VERSIONS, api_versions.ApiVersionsRequest, api_versions.ApiVersionsResponse
        ),
        _api(ApiKey.CREATE_TOPICS, topics.CreateTopicsRequest, topics.CreateTopicsResponse),
        _api(ApiKey.DELETE_TOPICS, topics.DeleteTopicsRequest, topics.DeleteTopicsResponse),
        _api(ApiKey.DELETE_RECORDS, offsets.DeleteRecordsRequest, offsets.DeleteRecordsResponse),
        _api(
            ApiKey.INIT_PRODUCER_ID,
            producer_ids.InitProducerIdRequest,
            producer_ids.InitProducerIdResponse,
            max_version=5,
        ),
        _api(
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            offsets.OffsetForLeaderEpochRequest,
            offsets.OffsetForLeaderEpochResponse,
        ),
        _api(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            transactions.AddPartitionsToTxnRequest,
            transactions.AddPartitionsToTxnResponse,
        ),
        _api(
            ApiKey.ADD_OFFSETS_TO_TXN,
            transactions.AddOffsetsToTxnRequest,
            transactions.AddOffsetsToTxnResponse,
        ),
        _api(ApiKey.END_TXN, transactions.EndTxnRequest, transactions.EndTxnResponse),
        _api(
            ApiKey.WRITE_TXN_MARKERS,
            transactions.WriteTxnMarkersRequest,
            transactions.WriteTxnMarkersResponse,
        ),
        _api(
            ApiKey.TXN_OFFSET_COMMIT,
            transactions.TxnOffsetCommitRequest,
            transactions.TxnOffsetCommitResponse,
        ),
        _api(
            ApiKey.DESCRIBE_CONFIGS, configs.DescribeConfigsRequest, configs.DescribeConfigsResponse
        ),
        _api(ApiKey.ALTER_CONFIGS, configs.AlterConfigsRequest, configs.AlterConfigsResponse),
        _api(
            ApiKey.ALTER_REPLICA_LOG_DIRS,
            log_dirs.AlterReplicaLogDirsRequest,
            log_dirs.AlterReplicaLogDirsResponse,
        ),
        _api(
            ApiKey.DESCRIBE_LOG_DIRS,
            log_dirs.DescribeLogDirsRequest,
            log_dirs.DescribeLogDirsResponse,
        ),
        _api(
            ApiKey.CREATE_PARTITIONS,
            topics.CreatePartitionsRequest,
            topics.CreatePartitionsResponse,
        ),
        _api(ApiKey.DELETE_GROUPS, groups.DeleteGroupsRequest, groups.DeleteGroupsResponse),
        _api(ApiKey.ELECT_LEADERS, topics.ElectLeadersRequest, topics.ElectLeadersResponse),
        _api(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            configs.IncrementalAlterConfigsRequest,
            configs.IncrementalAlterConfigsResponse,
        ),
        _api(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            topics.AlterPartitionReassignmentsRequest,
            topics.AlterPartitionReassignmentsResponse,
        ),
        _api(
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            topics.ListPartitionReassignmentsRequest,
            topics.ListPartitionReassignmentsResponse,
        ),
        _api(ApiKey.OFFSET_DELETE, groups.OffsetDeleteRequest, groups.OffsetDeleteResponse),
        _api(
            ApiKey.DESCRIBE_CLIENT_QUOTAS,
            quotas.DescribeClientQuotasRequest,
            quotas.DescribeClientQuotasResponse,
        ),
        _api(
            ApiKey.ALTER_CLIENT_QUOTAS,
            quotas.AlterClientQuotasRequest,
            quotas.AlterClientQuotasResponse,
        ),
        _api(
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
            scram.DescribeUserScramCredentialsRequest,
            scram.DescribeUserScramCredentialsResponse,
        ),
        _api(ApiKey.DESCRIBE_QUORUM, quorum.DescribeQuorumRequest, quorum.DescribeQuorumResponse),
        _api(
            ApiKey.UPDATE_FEATURES, features.UpdateFeaturesRequest, features.UpdateFeaturesResponse
        ),
        _api(
            ApiKey.DESCRIBE_CLUSTER,
            metadata.DescribeClusterRequest,
            metadata.DescribeClusterResponse,
        ),
        _api(
            ApiKey.DESCRIBE_PRODUCERS,
            producer_ids.DescribeProducersRequest,
            producer_ids.DescribeProducersResponse,
        ),
        _api(
            ApiKey.UNREGISTER_BROKER,
            broker_lifecycle.UnregisterBrokerRequest,
            broker_lifecycle.UnregisterBrokerResponse,
        ),
        _api(
            ApiKey.DESCRIBE_TRANSACTIONS,
            transactions.DescribeTransactionsRequest,
            transactions.DescribeTransactionsResponse,
        ),
        _api(
            ApiKey.LIST_TRANSACTIONS,
            transactions.ListTransactionsRequest,
            transactions.ListTransactionsResponse,
        ),
        _api(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            consumer_group.ConsumerGroupHeartbeatRequest,
            consumer_group.ConsumerGroupHeartbeatResponse,
        ),
        _api(
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            consumer_group.ConsumerGroupDescribeRequest,
            consumer_group.ConsumerGroupDescribeResponse,
        ),
        _api(
            ApiKey.LIST_CONFIG_RESOURCES,
            configs.ListConfigResourcesRequest,
            configs.ListConfigResourcesResponse,
        ),
        _api(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            metadata.DescribeTopicPartitionsRequest,
            metadata.DescribeTopicPartitionsResponse,
        ),
        _api(
            ApiKey.SHARE_GROUP_HEARTBEAT,
            share_group.ShareGroupHeartbeatRequest,
            share_group.ShareGroupHeartbeatResponse,
        ),
        _api(
            ApiKey.SHARE_GROUP_DESCRIBE,
            share_group.ShareGroupDescribeRequest,
            share_group.ShareGroupDescribeResponse,
        ),
        _api(ApiKey.SHARE_FETCH, share_group.ShareFetchRequest, share_group.ShareFetchResponse),
        _api(
            ApiKey.SHARE_ACKNOWLEDGE,
            share_group.ShareAcknowledgeRequest,
            share_group.ShareAcknowledgeResponse,
        ),
        _api(
            ApiKey.INITIALIZE_SHARE_GROUP_STATE,
            share_state.InitializeShareGroupStateRequest,
            share_state.InitializeShareGroupStateResponse,
        ),
        _api(
            ApiKey.READ_SHARE_GROUP_STATE,
            share_state.ReadShareGroupStateRequest,
            share_state.ReadShareGroupStateResponse,
        ),
        _api(
            ApiKey.WRITE_SHARE_GROUP_STATE,
            share_state.WriteShareGroupStateRequest,
            share_state.WriteShareGroupStateResponse,
        ),
        _api(
            ApiKey.DELETE_SHARE_GROUP_STATE,
            share_state.DeleteShareGroupStateRequest,
            share_state.DeleteShareGroupStateResponse,
        ),
        _api(
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
            share_state.ReadShareGroupStateSummaryRequest,
            share_state.ReadShareGroupStateSummaryResponse,
        ),
        _api(
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
            share_group.DescribeShareGroupOffsetsRequest,
            share_group.DescribeShareGroupOffsetsResponse,
        ),
        _api(
            ApiKey.ALTER_SHARE_GROUP_OFFSETS,
            share_group.AlterShareGroupOffsetsRequest,
            share_group.AlterShareGroupOffsetsResponse,
        ),
        _api(
            ApiKey.DELETE_SHARE_GROUP_OFFSETS,
            share_group.DeleteShareGroupOffsetsRequest,
            share_group.DeleteShareGroupOffsetsResponse,
        ),
    )
}


def is_flexible(key: int, version: int) -> bool:
    """Whether bodies of that API and version are flexible, and so its request header."""
    return version >= FIRST_FLEXIBLE.get(key, VERSION_MAX)


def request_header_version(key: int, version: int) -> int:
    return 2 if is_flexible(key, version) else 1


def response_header_version(key: int, version: int) -> int:
    """1 for flexible versions; but ApiVersions is answered to clients who know no version yet."""
    return 1 if key != ApiKey.API_VERSIONS and is_flexible(key, version) else 0
