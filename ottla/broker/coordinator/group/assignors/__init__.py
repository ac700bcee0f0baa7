"""Who is to have which partitions: the assignors that run in the coordinator, by Kafka's names."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.broker.coordinator.group.assignors.range import assign_ranges
from ottla.broker.coordinator.group.assignors.uniform import assign_uniformly
from ottla.broker.coordinator.group.targets import Assignor

CONSUMER_ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}
