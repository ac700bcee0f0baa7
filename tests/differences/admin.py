"""Administration by chance: topics, partitions, settings, quotas, log dirs, features, and all that
describes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.protocol.api import SERVED, ApiKey
from ottla.protocol.wire import ZERO_UUID
from tests.differences import settings
from tests.differences.batches import Batch, Record
from tests.differences.chance import Chance
from tests.differences.requests import Body, LogDir, Request, Sequence, Step, TopicId

NAMES = ("~a", "~b", "~c.d", "~c_d", "~e")
WRONG_NAMES = (
    "",
    ".",
    "..",
    "~ bad",
    "~\u00fc",
    "~" + "x" * 243,
    "~" + "x" * 242,
    "~" + "y" * 240,
    "__consumer_offsets",
    "__transaction_state",
    "__cluster_metadata",
    "~/a",
    "~:a",
    "a\u0000b",
)
INTERNAL = "__"
UNKNOWN = "~zz"
UNKNOWN_IDS = (bytes([9]) * 16, bytes([1]) * 16)
FEATURES = (
    "metadata.version",
    "kraft.version",
    "group.version",
    "transaction.version",
    "share.version",
    "bogus",
    "",
)
METADATA_LOG = "__cluster_metadata"
TIMEOUT_MS = 5_000
STEPS = 25
WEIGHTS: dict[ApiKey, float] = {
    ApiKey.CREATE_TOPICS: 14,
    ApiKey.DELETE_TOPICS: 6,
    ApiKey.CREATE_PARTITIONS: 7,
    ApiKey.METADATA: 9,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: 5,
    ApiKey.DESCRIBE_CONFIGS: 9,
    ApiKey.ALTER_CONFIGS: 5,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 12,
    ApiKey.LIST_CONFIG_RESOURCES: 2,
    ApiKey.DESCRIBE_LOG_DIRS: 3,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 2,
    ApiKey.DESCRIBE_CLUSTER: 1,
    ApiKey.DESCRIBE_QUORUM: 1,
    ApiKey.ELECT_LEADERS: 3,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 4,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: 2,
    ApiKey.UPDATE_FEATURES: 3,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: 4,
    ApiKey.ALTER_CLIENT_QUOTAS: 4,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: 1,
    ApiKey.UNREGISTER_BROKER: 1,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 1,
    ApiKey.LIST_OFFSETS: 2,
    ApiKey.DELETE_RECORDS: 2,
    ApiKey.API_VERSIONS: 1,
    ApiKey.DESCRIBE_PRODUCERS: 1,
    ApiKey.PRODUCE: 2,
    ApiKey.FIND_COORDINATOR: 2,
}
METADATA_IDS_SINCE = 10


def sequence(seed: int) -> Sequence:
    return _Admin(Chance("admin", seed)).sequence()


class _Admin:
    """One method an API, of its name in lower case; each returns a body."""

    def __init__(self, chance: Chance) -> None:
        self.chance = chance
        self.made: list[str] = []

    def sequence(self) -> Sequence:
        steps: list[Step] = []
        if self.chance.happens(0.8):
            for name in self.chance.rng.sample(NAMES, self.chance.one(1, 2)):
                self.made.append(name)
                count = self.chance.one(1, 2, 3)
                topic = {"name": name, "num_partitions": count, "replication_factor": 1}
                body: Body = {"topics": [topic], "timeout_ms": TIMEOUT_MS}
                steps.append((Request(ApiKey.CREATE_TOPICS, 7, body),))
        while len(steps) < STEPS:
            api = self.chance.weighed(WEIGHTS)
            version = max(self.chance.version(api), SERVED[api].min_version)
            make: Callable[[int], Body] = getattr(self, api.name.lower())
            steps.append((Request(api, version, make(version)),))
        return tuple(steps)

    # Names

    def name(self, wrong: float = 0.08, unknown: float = 0.1) -> str:
        if self.chance.happens(wrong):
            return self.chance.of(WRONG_NAMES)
        if self.chance.happens(unknown):
            return UNKNOWN
        if self.made and self.chance.happens(0.6):
            return self.chance.of(self.made)
        return self.chance.of(NAMES)

    def own_name(self) -> str:
        """Not a coordinator's topic: those are not to be changed, and what is in them is each
        broker's own."""
        name = self.name()
        return UNKNOWN if name.startswith(INTERNAL) else name

    def partition(self) -> int:
        return self.chance.one(0, 0, 0, 1, 2, 5, -1)

    def partitions(self) -> list[int]:
        return self.chance.some(self.partition, (0, 1, 1, 2))

    def topic_id(self, unknown: float = 0.15) -> Any:
        if self.chance.happens(unknown):
            return self.chance.of(UNKNOWN_IDS)
        return TopicId(self.name(0, 0.05), self.chance.one(0, 0, 0, 0, 1))

    # Topics

    def create_topics(self, version: int) -> Body:
        chance = self.chance
        topics = chance.some(self._new_topic, (1, 1, 1, 2))
        only_validate = chance.happens(0.2)
        if not only_validate:
            self.made += [
                topic["name"]
                for topic in topics
                if topic["name"] in NAMES and topic["num_partitions"] and not topic["configs"]
            ]
        return {
            "topics": topics,
            "timeout_ms": chance.one(TIMEOUT_MS, 60_000),
            "validate_only": only_validate,
        }

    def _new_topic(self) -> Body:
        chance = self.chance
        count = chance.one(-1, 1, 1, 1, 2, 3, 3, 0, -2, 5)
        factor = chance.one(-1, 1, 1, 1, 1, 1, 1, 0, -2, 2, 3, 32767, -32768)
        assignments: list[Body] = []
        if chance.happens(0.2):
            assignments = chance.some(self._assignment)
            if chance.happens(0.4):
                assignments = [
                    {"partition_index": index, "broker_ids": [1]}
                    for index in range(chance.one(1, 2, 3))
                ]
            if chance.happens(0.75):
                count = factor = -1
            elif chance.happens(0.5):
                count, factor = len(assignments), -1
        return {
            "name": self.name(0.1, 0),
            "num_partitions": count,
            "replication_factor": factor,
            "assignments": assignments,
            "configs": chance.some(self._config, (0, 0, 0, 1, 1, 2)),
        }

    def _assignment(self) -> Body:
        brokers: tuple[list[int], ...] = ([1], [1], [1], [], [2], [1, 1], [-1], [1, 2], [9])
        index = self.chance.one(0, 0, 1, 1, 2, -1, 5)
        return {"partition_index": index, "broker_ids": self.chance.of(brokers)}

    def _config(self, kind: int = settings.TOPIC, right: float = 0.3) -> Body:
        if kind == settings.TOPIC and self.chance.happens(right):
            values = settings.RIGHT
        else:
            values = settings.BY_TYPE.get(kind, settings.BY_TYPE[settings.TOPIC])
        name = self.chance.of(list(values))
        value = None if self.chance.happens(0.04) else self.chance.of(values[name])
        return {"name": name, "value": value}

    def delete_topics(self, version: int) -> Body:
        def state() -> Body:
            drawn = self.chance.rng.random()
            if drawn < 0.45:
                return {"name": self.own_name(), "topic_id": ZERO_UUID}
            if drawn < 0.9:
                return {"name": None, "topic_id": self.topic_id()}
            if drawn < 0.95:
                return {"name": self.own_name(), "topic_id": self.topic_id()}
            return {"name": None, "topic_id": ZERO_UUID}

        return {
            "topics": self.chance.some(state, (0, 1, 1, 1, 2, 2, 3)),
            "topic_names": self.chance.some(self.own_name, (0, 1, 1, 1, 2)),
            "timeout_ms": TIMEOUT_MS,
        }

    def create_partitions(self, version: int) -> Body:
        chance = self.chance
        given: tuple[list[int], ...] = ([1], [2], [], [1, 1], [1, 2], [-1])
        assignments: tuple[Any, ...] = (None, None, None, [], [[1], [1]])
        assignments += tuple([one] for one in given)

        def topic() -> Body:
            drawn = chance.of(assignments)
            return {
                "name": self.own_name(),
                "count": chance.one(1, 2, 3, 4, 0, -1, 5, 6),
                "assignments": drawn and [{"broker_ids": brokers} for brokers in drawn],
            }

        return {
            "topics": chance.some(topic, (0, 1, 1, 1, 2, 2)),
            "timeout_ms": TIMEOUT_MS,
            "validate_only": chance.happens(0.25),
        }

    def metadata(self, version: int) -> Body:
        chance = self.chance
        by_id = version >= METADATA_IDS_SINCE and chance.happens(0.35)

        def topic() -> Body:
            if by_id:
                name = self.name() if chance.happens(0.1) else None
                return {"name": name, "topic_id": self.topic_id()}
            return {"name": self.name()}

        topics: list[Body] | None = chance.some(topic, (1, 1, 2, 3))
        if chance.happens(0.12):
            nothing: list[Body] | None = None
            topics = [] if version == 0 else chance.of((nothing, []))
        return {
            "topics": topics,
            "allow_auto_topic_creation": chance.happens(0.2),
            "include_cluster_authorized_operations": chance.happens(0.5),
            "include_topic_authorized_operations": chance.happens(0.5),
        }

    def describe_topic_partitions(self, version: int) -> Body:
        chance = self.chance
        cursor = {"topic_name": self.name(), "partition_index": chance.one(0, 0, 1, 2, -1, 99)}
        return {
            "topics": chance.some(lambda: {"name": self.name()}, (1, 1, 2, 3, 4)),
            "response_partition_limit": chance.one(-1, 0, 1, 2, 3, 2000, 2001, 100_000),
            "cursor": None if chance.happens(0.5) else cursor,
        }

    # Settings

    def _resource(self) -> tuple[int, str]:
        chance = self.chance
        kind = chance.one(2, 2, 2, 4, 4, 8, 16, 32, 0, 1, 3, 64, -1, 127)
        match kind:
            case settings.TOPIC:
                return kind, self.name()
            case settings.BROKER:
                return kind, chance.one("1", "1", "", "2", "abc", "-1", "01", " 1")
            case settings.LOGGER:
                return kind, chance.one("1", "1", "", "2", "abc")
            case settings.METRICS | settings.GROUP:
                return kind, chance.one("~g", "~g", "~h", "")
        return kind, chance.one("", "1", "~a")

    def _changed_resource(self) -> tuple[int, str]:
        kind, name = self._resource()
        if kind == settings.TOPIC and name.startswith(INTERNAL):
            name = "~a"
        return kind, name

    def describe_configs(self, version: int) -> Body:
        chance = self.chance

        def resource() -> Body:
            kind, name = self._resource()
            known = list(settings.BY_TYPE.get(kind, settings.BY_TYPE[settings.TOPIC]))
            keys: list[str] | None
            if kind == settings.BROKER:
                keys = chance.some(lambda: chance.of([*known, "log4j"]), (1, 2, 4, 12, 30))
            elif kind == settings.LOGGER:
                keys = chance.some(lambda: chance.one("nope", "x"))
            else:
                keys = chance.one(None, None, chance.some(lambda: chance.of(known), (0, 1, 2)))
            return {"resource_type": kind, "resource_name": name, "configuration_keys": keys}

        return {
            "resources": chance.some(resource, (0, 1, 1, 1, 2, 3)),
            "include_synonyms": chance.happens(0.5),
            "include_documentation": chance.happens(0.2),
        }

    def alter_configs(self, version: int) -> Body:
        chance = self.chance

        def resource() -> Body:
            kind, name = self._changed_resource()
            if kind == settings.LOGGER:
                name = "2"
            configs = chance.some(lambda: self._config(kind), (0, 1, 1, 2, 3))
            return {"resource_type": kind, "resource_name": name, "configs": configs}

        resources = chance.some(resource, (0, 1, 1, 1, 2))
        return {"resources": resources, "validate_only": chance.happens(0.3)}

    def incremental_alter_configs(self, version: int) -> Body:
        chance = self.chance

        def config(kind: int) -> Body:
            if kind == settings.LOGGER:
                return {
                    "name": chance.one("nope", "", "kafka.nope"),
                    "config_operation": chance.one(0, 1, 2, 3),
                    "value": chance.one("INFO", "BOGUS", None, "info"),
                }
            body = self._config(kind, 0.4)
            operation = chance.one(0, 0, 0, 0, 1, 2, 3) if chance.happens(0.5) else 0
            if operation in (2, 3) and kind == settings.TOPIC and chance.happens(0.7):
                name = chance.of(settings.LISTS)
                body = {"name": name, "value": chance.of(settings.BY_TYPE[kind][name])}
            elif operation == 1 and chance.happens(0.6):
                body["value"] = None
            return body | {"config_operation": operation}

        def resource() -> Body:
            kind, name = self._changed_resource()
            if kind == settings.LOGGER:
                name = chance.one("1", "2", "", "abc")
            configs = chance.some(lambda: config(kind), (0, 1, 1, 1, 2, 3))
            return {"resource_type": kind, "resource_name": name, "configs": configs}

        resources = chance.some(resource, (0, 1, 1, 1, 2))
        return {"resources": resources, "validate_only": chance.happens(0.2)}

    def list_config_resources(self, version: int) -> Body:
        kinds: tuple[list[int], ...]
        kinds = ([], [2], [4], [8], [16], [32], [2, 32, 16], [0], [64], [-1], [2, 2], [4, 3])
        return {"resource_types": self.chance.of(kinds)}

    # Quotas

    def describe_client_quotas(self, version: int) -> Body:
        chance = self.chance

        def component() -> Body:
            return {
                "entity_type": chance.one("user", "client-id", "ip", "bogus", ""),
                "match_type": chance.one(0, 1, 2, 0, 3, -1),
                "match": chance.one("~u", "~c", "10.9.1.1", None, "", "bad ip"),
            }

        components = chance.some(component, (0, 1, 1, 2, 2))
        return {"components": components, "strict": chance.happens(0.5)}

    def alter_client_quotas(self, version: int) -> Body:
        chance = self.chance

        def entity() -> Body:
            kind = chance.one("user", "user", "client-id", "client-id", "ip", "ip", "bogus", "")
            if kind == "ip":
                name = chance.one("10.9.1.1", "10.9.1.2", "bad ip", "", "::1", "~u")
            else:
                name = chance.one("~u", "~u", "~c", "~ \u00fc", "~%", "")
            return {"entity_type": kind, "entity_name": name}

        def op() -> Body:
            return {
                "key": chance.of(settings.QUOTAS),
                "value": chance.of(settings.QUOTA_VALUES),
                "remove": chance.happens(0.25),
            }

        def entry() -> Body:
            return {
                "entity": chance.some(entity, (0, 1, 1, 1, 2)),
                "ops": chance.some(op, (0, 1, 1, 2)),
            }

        entries = chance.some(entry, (0, 1, 1, 2))
        # Kafka refuses what stands there twice, and does what the first of the two says.
        named = [
            {one["entity_type"]: one["entity_name"] for one in each["entity"]} for each in entries
        ]
        has_twice = len(entries) == 2 and named[0] == named[1]
        return {"entries": entries, "validate_only": chance.happens(0.2) or has_twice}

    def describe_user_scram_credentials(self, version: int) -> Body:
        users: tuple[list[str] | None, ...] = (None, [], ["~u"], [""], ["~u", "~u"])
        drawn = self.chance.of(users)
        return {"users": drawn and [{"name": name} for name in drawn]}

    # The broker

    def describe_log_dirs(self, version: int) -> Body:
        def topic() -> Body:
            return {"topic": self.name(), "partitions": self.partitions()}

        topics = self.chance.some(topic, (1, 1, 2))
        return {"topics": self.chance.one(None, [], topics)}

    def alter_replica_log_dirs(self, version: int) -> Body:
        chance = self.chance

        def topic() -> Body:
            return {"name": self.name(), "partitions": self.partitions()}

        def directory() -> Body:
            paths = (LogDir(), LogDir(), "/nope", "relative", "", LogDir("/"), LogDir("/../x"))
            return {"path": chance.of(paths), "topics": chance.some(topic, (0, 1, 1, 2))}

        return {"dirs": chance.some(directory, (0, 1, 1, 2))}

    def describe_cluster(self, version: int) -> Body:
        return {
            "include_cluster_authorized_operations": self.chance.happens(0.5),
            "endpoint_type": self.chance.one(1, 1, 2, 0, 3, -1),
            "include_fenced_brokers": self.chance.happens(0.5),
        }

    def describe_quorum(self, version: int) -> Body:
        """Of more than one partition Kafka describes none."""
        name = self.chance.one(METADATA_LOG, METADATA_LOG, "~a", "")
        index = self.chance.one(0, 0, 1, -1)
        return {"topics": [{"topic_name": name, "partitions": [{"partition_index": index}]}]}

    def elect_leaders(self, version: int) -> Body:
        chance = self.chance

        def topic() -> Body:
            return {"topic": self.name(), "partitions": self.partitions()}

        return {
            "election_type": chance.one(0, 0, 1, 1, 2, -1),
            "topic_partitions": None if chance.happens(0.1) else chance.some(topic, (0, 1, 1, 2)),
            "timeout_ms": TIMEOUT_MS,
        }

    def alter_partition_reassignments(self, version: int) -> Body:
        chance = self.chance
        replicas: tuple[list[int] | None, ...] = ([1], [1], None, [2], [], [1, 1], [-1], [1, 2])

        def part() -> Body:
            return {"partition_index": self.partition(), "replicas": chance.of(replicas)}

        def topic() -> Body:
            return {"name": self.own_name(), "partitions": chance.some(part, (0, 1, 1, 2))}

        return {
            "topics": chance.some(topic, (0, 1, 1, 2)),
            "timeout_ms": TIMEOUT_MS,
            "allow_replication_factor_change": chance.happens(0.6),
        }

    def list_partition_reassignments(self, version: int) -> Body:
        def topic() -> Body:
            return {"name": self.name(), "partition_indexes": self.partitions()}

        topics = self.chance.some(topic, (1, 1, 2))
        return {"topics": self.chance.one(None, [], topics), "timeout_ms": TIMEOUT_MS}

    def update_features(self, version: int) -> Body:
        """Nothing is changed: later sequences need what there is."""
        chance = self.chance

        def feature() -> Body:
            name = chance.of(FEATURES)
            level = chance.one(0, 1, 2, 3, 7, 29, 30, 31, 99, -1, -2)
            if version == 0:
                # It cannot only validate: what it asks for must be refused.
                level = level if name == "bogus" else chance.one(99, -1)
                return {"feature": name, "max_version_level": level}
            kind = chance.one(0, 1, 1, 2, 3, 4, -1)
            return {"feature": name, "max_version_level": level, "upgrade_type": kind}

        features = chance.some(feature, (0, 1, 1, 1, 2))
        return {"timeout_ms": TIMEOUT_MS, "feature_updates": features, "validate_only": True}

    def unregister_broker(self, version: int) -> Body:
        return {"broker_id": self.chance.one(99, -1, 2)}

    def api_versions(self, version: int) -> Body:
        return {
            "client_software_name": self.chance.one("a", "", "bad name!", "-a"),
            "client_software_version": self.chance.one("1", ""),
        }

    def find_coordinator(self, version: int) -> Body:
        chance = self.chance
        keys = chance.some(lambda: chance.one("~g", "~h", "", "~a:0"), (0, 1, 1, 2, 3))
        kind = chance.one(0, 0, 1, 1, 2, 3, -1)
        return {"key": (keys or [""])[0], "key_type": kind, "coordinator_keys": keys}

    # Logs

    def offset_for_leader_epoch(self, version: int) -> Body:
        chance = self.chance

        def part() -> Body:
            return {
                "partition": self.partition(),
                "current_leader_epoch": chance.one(-1, -1, 0, 1, -2),
                "leader_epoch": chance.one(0, 0, -1, 1, 5),
            }

        def topic() -> Body:
            return {"topic": self.own_name(), "partitions": chance.some(part)}

        return {"replica_id": -1, "topics": chance.some(topic)}

    def list_offsets(self, version: int) -> Body:
        chance = self.chance
        moments = (-1, -1, -2, -2, -3, -4, -5, -6, -7, 0, 1_700_000_000_000, 1_700_000_000_001)

        def part() -> Body:
            return {
                "partition_index": self.partition(),
                "current_leader_epoch": chance.one(-1, -1, -1, 0, 1),
                "timestamp": chance.of(moments),
            }

        def topic() -> Body:
            return {"name": self.own_name(), "partitions": chance.some(part, (1, 1, 2))}

        return {
            "replica_id": -1,
            "isolation_level": chance.one(0, 1, 1),
            "topics": chance.some(topic),
            "timeout_ms": 1_000,
        }

    def delete_records(self, version: int) -> Body:
        chance = self.chance
        topics = dict.fromkeys(chance.some(self.own_name))
        offsets = (-1, 0, 1, 2, 5, -2, 1000)
        return {
            "topics": [
                {
                    "name": name,
                    "partitions": [
                        {"partition_index": self.partition(), "offset": chance.of(offsets)}
                    ],
                }
                for name in topics
            ],
            "timeout_ms": TIMEOUT_MS,
        }

    def describe_producers(self, version: int) -> Body:
        def topic() -> Body:
            return {"name": self.own_name(), "partition_indexes": self.partitions()}

        return {"topics": self.chance.some(topic)}

    def produce(self, version: int) -> Body:
        chance = self.chance
        records = tuple(Record(None, "v" * 10) for _ in range(chance.one(1, 2, 3)))
        part = {"index": chance.one(0, 0, 1), "records": Batch(records, 1_700_000_000_000)}
        topic = {"name": self.name(0, 0.05), "topic_id": self.topic_id(0.05)}
        return {
            "acks": -1,
            "timeout_ms": TIMEOUT_MS,
            "topic_data": [topic | {"partition_data": [part]}],
        }
