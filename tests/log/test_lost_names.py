"""Log dirs from which something was removed, or whose names cannot be opened for a moment."""

from __future__ import annotations

import errno
import random

import pytest

from ottla.broker.log.directories import ForeignLogDir
from tests.log.test_manager import TOPIC_ID, Kit, append


def test_a_dir_with_partitions_and_without_its_identity_is_refused_as_it_is() -> None:
    kit = Kit()
    manager = kit.started()
    append(manager.create("t", 0, TOPIC_ID))
    manager.shutdown(1)
    kit.disk.remove("/data/meta.properties")
    for _ in range(2):
        with pytest.raises(ForeignLogDir, match=r"holds t-0, and its meta\.properties,.*missing"):
            kit.started()
        kit.disk.remove("/data/.lock")
    assert not kit.disk.exists("/data/meta.properties")


def test_no_dir_joins_a_cluster_where_another_is_refused() -> None:
    """Else it would be another cluster's when the other one's identity is back."""
    kit = Kit("/a", "/b")
    kit.dirs = ["/b"]
    manager = kit.started(cluster_id=None, new_cluster_id="first")
    append(manager.create("t", 0, TOPIC_ID))
    manager.shutdown(1)
    identity = kit.content("/b/meta.properties")
    assert identity is not None
    kit.disk.remove("/b/meta.properties")
    kit.dirs = ["/a", "/b"]
    refused = kit.manager(cluster_id=None, new_cluster_id="second")
    with pytest.raises(ForeignLogDir, match="The log dir /b holds t-0"):
        refused.prepare()
    refused.unlock()
    kit.disk.open("/b/meta.properties", create=True).pwrite(identity, 0)
    again = kit.manager(cluster_id=None, new_cluster_id="third", rng=random.Random(2))
    again.load()

    assert again.cluster_id == "first"


def test_an_empty_directory_with_a_partitions_name_had_no_identity_to_lose() -> None:
    kit = Kit()
    kit.disk.make_dir("/data")
    kit.disk.make_dir("/data/photos-2024")

    assert kit.started().cluster_id == "cluster"


def test_what_was_removed_while_the_broker_was_stopped_is_known() -> None:
    kit = Kit()
    manager = kit.started()
    for partition in range(3):
        log = manager.create("t", partition, TOPIC_ID)
        for _ in range(partition):
            append(log)
    manager.shutdown(1)
    for partition in (0, 2):
        for name in kit.disk.list(f"/data/t-{partition}"):
            kit.disk.remove(f"/data/t-{partition}/{name}")
        kit.disk.remove(f"/data/t-{partition}")

    assert kit.started().vanished == {("t", 2): 2}  # nothing was in the first


def test_a_process_short_of_descriptors_may_delete() -> None:
    """The directory could not be opened, so its sync has not failed."""
    kit = Kit()
    manager = kit.started()
    manager.create("t", 0, TOPIC_ID)
    kit.disk.inject("sync_dir", errno.EMFILE, path="/data")
    manager.delete("t", 0)
    assert manager.offline_dirs == {}
    kit.clock.advance(1000)
    for removal in manager.deletions.due_directories():
        list(manager.deletions.remove_directory(removal))

    assert not any(name.startswith("t-0") for name in kit.disk.list("/data"))
