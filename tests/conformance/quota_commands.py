"""Apache Kafka's kafka-configs on quotas: of users, clients, both together, and addresses."""

from __future__ import annotations

from tests.conformance.command_process import CONFIGS, Row, among, refused, whole

ADDRESS = "127.0.0.2"


def rows(name: str) -> list[Row]:
    """What is said of a user and a client of that name; nothing is left behind."""
    return [*_addresses(), *_users(name), *_users_with_clients(name), *_clients(name)]


def _users(name: str) -> list[Row]:
    users = (CONFIGS, "--entity-type", "users")
    user, default = (*users, "--entity-name", name), (*users, "--entity-default")
    done = f"Completed updating config for user {name}."
    all_done = "Completed updating default config for users in the cluster."
    added = "producer_byte_rate=1024,consumer_byte_rate=2048,request_percentage=50"
    quotas = f"Quota configs for user-principal '{name}' are"
    by_default = "Quota configs for the default user-principal are controller_mutation_rate=5.0"
    before = (
        f"{quotas} consumer_byte_rate=2048.0, request_percentage=50.0, producer_byte_rate=1024.0"
    )
    return [
        whole((*user, "--alter", "--add-config", added), done),
        whole((*default, "--alter", "--add-config", "controller_mutation_rate=5"), all_done),
        whole((*user, "--describe"), before),
        whole((*default, "--describe"), by_default),
        among((*users, "--describe"), before, by_default),
        whole((*user, "--alter", "--delete-config", "request_percentage"), done),
        whole(
            (*user, "--describe"), f"{quotas} consumer_byte_rate=2048.0, producer_byte_rate=1024.0"
        ),
        refused(
            (*user, "--alter", "--add-config", "producer_byte_rate=99.5"),
            "Caused by: org.apache.kafka.common.errors.InvalidRequestException: "
            "producer_byte_rate cannot be a fractional value.",
        ),
        whole((*user, "--alter", "--delete-config", "producer_byte_rate,consumer_byte_rate"), done),
        whole((*default, "--alter", "--delete-config", "controller_mutation_rate"), all_done),
        whole((*user, "--describe")),
        whole((*default, "--describe")),
    ]


def _users_with_clients(name: str) -> list[Row]:
    user = (CONFIGS, "--entity-type", "users", "--entity-name", name, "--entity-type", "clients")
    client, default = (*user, "--entity-name", name), (*user, "--entity-default")
    done = f"Completed updating config for user {name}."
    both = f"Quota configs for user-principal '{name}', client-id '{name}' are"
    others = f"Quota configs for user-principal '{name}', the default client-id are"
    return [
        whole((*client, "--alter", "--add-config", "producer_byte_rate=99"), done),
        whole((*default, "--alter", "--add-config", "request_percentage=12.5"), done),
        whole((*client, "--describe"), f"{both} producer_byte_rate=99.0"),
        whole((*default, "--describe"), f"{others} request_percentage=12.5"),
        whole(
            (*user, "--describe"),
            f"{both} producer_byte_rate=99.0",
            f"{others} request_percentage=12.5",
        ),
        whole((*client, "--alter", "--delete-config", "producer_byte_rate"), done),
        whole((*default, "--alter", "--delete-config", "request_percentage"), done),
        whole((*user, "--describe")),
    ]


def _clients(name: str) -> list[Row]:
    client = (CONFIGS, "--entity-type", "clients", "--entity-name", name)
    default = (CONFIGS, "--client-defaults")
    done = f"Completed updating config for client {name}."
    all_done = "Completed updating default config for clients in the cluster."
    quotas = f"Quota configs for client-id '{name}' are"
    return [
        whole((*client, "--alter", "--add-config", "producer_byte_rate=1024"), done),
        whole((*client, "--describe"), f"{quotas} producer_byte_rate=1024.0"),
        whole((*client, "--alter", "--add-config", "producer_byte_rate=2048"), done),
        whole((*client, "--describe"), f"{quotas} producer_byte_rate=2048.0"),
        whole((*client, "--alter", "--delete-config", "producer_byte_rate"), done),
        whole((*client, "--describe")),
        whole((*default, "--alter", "--add-config", "consumer_byte_rate=77"), all_done),
        whole(
            (*default, "--describe"),
            "Quota configs for the default client-id are consumer_byte_rate=77.0",
        ),
        whole((*default, "--alter", "--delete-config", "consumer_byte_rate"), all_done),
        whole((*default, "--describe")),
    ]


def _addresses() -> list[Row]:
    addresses = (CONFIGS, "--entity-type", "ips")
    address, default = (*addresses, "--entity-name", ADDRESS), (*addresses, "--entity-default")
    done = f"Completed updating config for ip {ADDRESS}."
    all_done = "Completed updating default config for ips in the cluster."
    key = "connection_creation_rate"
    one = f"Quota configs for ip '{ADDRESS}' are {key}=100.0"
    others = f"Quota configs for the default ip are {key}=2000.0"
    return [
        whole((*address, "--alter", "--add-config", f"{key}=100"), done),
        whole((*default, "--alter", "--add-config", f"{key}=2000"), all_done),
        whole((*address, "--describe"), one),
        whole((*default, "--describe"), others),
        among((*addresses, "--describe"), one, others),
        whole((*address, "--alter", "--delete-config", key), done),
        whole((*default, "--alter", "--delete-config", key), all_done),
        among((*addresses, "--describe"), lacks=key),
        refused(
            (*addresses, "--entity-name", "not an ip", "--alter", "--add-config", f"{key}=10"),
            "The entity name for ips must be a valid IP or resolvable host, but it is: not an ip",
        ),
    ]
