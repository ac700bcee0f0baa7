"""What a controller does first when it leads: the first records of a new cluster, and itself.

Each is a command of its own, so that each stands in the log as Apache Kafka writes it: the first
transaction, the controller's registration, the broker's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.broker.controller.brokers import (
    Registered,
    Registration,
    register,
    register_controller,
)
from ottla.broker.controller.features import abort_record, first_records, levels_above_ours
from ottla.broker.log.directories import LogDirError
from ottla.broker.metadata.image import EndpointImage, MetadataImage
from ottla.broker.metadata.records import CONTROLLERS_SINCE, DIRECTORIES_SINCE
from ottla.broker.ports import Events
from ottla.broker.quorum.driver import Quorum
from ottla.protocol.schema import Message


class NewCluster(NamedTuple):
    """What a cluster begins with: the records of bootstrap.checkpoint, and a broker default."""

    bootstrap: Sequence[Message]
    min_insync_replicas: int = 1


def check_log_dirs(image: MetadataImage, count: int) -> None:
    """LogDirError for several log dirs where metadata.version cannot say which a replica lies in:
    one that is away would have its partitions begin again, empty."""
    if count > 1 and not image.has_directories:
        raise LogDirError(
            f"metadata.version {image.metadata_version} cannot say in which of the {count} log.dirs"
            " a partition lies, so that those of one whose disk is away at a start would begin"
            f" again, empty. Raise it to {DIRECTORIES_SINCE} or above with Apache Kafka first."
        )


async def activate(
    quorum: Quorum,
    *,
    new_cluster: NewCluster,
    registration: Registration,
    controller_listeners: Sequence[EndpointImage],
    events: Events,
) -> Registered:
    """Brings the metadata of a started quorum to where this node is registered, and fenced.

    The broker is put in service by `brokers.unfence`, when its logs are loaded. Raises LogDirError
    as `check_log_dirs`.
    """
    if quorum.in_transaction:
        await quorum.submit(lambda image: ([abort_record()], None))
    if not quorum.image.metadata_version:
        first = first_records(
            new_cluster.bootstrap, min_insync_replicas=new_cluster.min_insync_replicas
        )
        await quorum.submit(lambda image: (first, None))
    check_log_dirs(quorum.image, len(registration.directories))
    above = levels_above_ours(quorum.image)
    if above:
        events.info("features_above_ours", kept=above)

    def register_node(image: MetadataImage) -> tuple[list[Message], Registered]:
        if image.metadata_version < CONTROLLERS_SINCE:
            return register(image, registration)
        controller = register_controller(
            registration.broker_id, registration.incarnation_id, controller_listeners
        )
        records, registered = register(image, registration, position=1)
        return [controller, *records], registered

    return await quorum.submit(register_node)
