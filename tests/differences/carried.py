"""What random sequences have left on the disk of one broker, opened by both.

    make carried
    make carried ARGS="--seeds 20 --first 1000"

One broker alone plays sequences of all areas (areas.py). It is stopped, or killed; Apache Kafka and
Ottla each open a copy of its directory and are asked about everything: topics and where they lie,
records, their offsets by time, producers, groups and what they have committed, transactions,
settings, quotas. Where the answers differ and `known` has no reason for it, both are shown.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ottla.protocol.api import ApiKey
from tests.differences import settings, settling
from tests.differences.__main__ import OTTLA_SETTINGS, SETTINGS, SmallKafka
from tests.differences.areas import AREAS
from tests.differences.batches import next_offset
from tests.differences.comparing import Difference, differing, normal
from tests.differences.known import KNOWN, Accepted
from tests.differences.known_carried import CARRIED, come_back, deleted_settings
from tests.differences.peer import Peer
from tests.differences.playing import is_heard, may_wait
from tests.differences.requests import OWN, Body, HangUp, Request, Sequence
from tests.peers.servers import Ottla, Server

PREFIX = "carried"
HOUR_MS = 3_600_000
TIMEOUTS = ("transaction_timeout_ms", "session_timeout_ms", "rebalance_timeout_ms")
TIMEOUT_MS = 600_000
"""What would end by itself while one broker is stopped and two are started."""
LONGER: dict[str, object] = {
    "group.consumer.session.timeout.ms": 60_000,
    "group.share.session.timeout.ms": 60_000,
    "group.share.record.lock.duration.ms": 60_000,
}
UNHEARD_SECONDS = 0.03
FIRST, END = -2, -1
BYTES_MAX = 1 << 26
SHOWN_MAX, PLACES_MAX = 500, 6
console = Console(width=110, highlight=False)


def play(peer: Peer, sequence: Sequence) -> None:
    """To one broker, whose answers matter to nobody."""
    topics: set[str] = set()
    transactions: set[str] = set()
    for step in sequence:
        if isinstance(step, HangUp):
            peer.hang_up(step.who)
            time.sleep(settling.RELEASED_SECONDS)
            continue
        peer.hear(step[0].who)
        if peer.waits(step[0].who):
            continue
        asked = tuple(_with_time(request) for request in step)
        for request in asked:
            topics |= settling.names_of(request.body)
            transactions |= settling.transactions_of(request.body)
        if len(asked) == 1 and is_heard(asked[0]) and not may_wait(asked[0]):
            peer.answer(asked[0])
            settling.settle(peer, asked[0], sorted(topics), transactions)
        else:
            peer.write(asked)
            time.sleep(UNHEARD_SECONDS)


def _with_time(request: Request) -> Request:
    # A millisecond, or less, is there to be refused.
    longer = {name: TIMEOUT_MS for name in TIMEOUTS if 1 < request.body.get(name, 0) < TIMEOUT_MS}
    return replace(request, body=request.body | longer) if longer else request


@dataclass(slots=True)
class Both:
    """The two that have opened a directory, and where they differ."""

    kafka: Peer
    ottla: Peer
    accepted: Accepted
    asked: int = 0
    shapes: Counter[str] = field(default_factory=Counter)

    def ask(self, api: ApiKey, version: int, body: Body) -> Body:
        """Apache Kafka's answer."""
        request = Request(api, version, body)
        self.asked += 1
        answers = [peer.answer(request) for peer in (self.kafka, self.ottla)]
        trees = [
            normal(request, answer, peer.meanings, peer.port)
            for peer, answer in zip((self.kafka, self.ottla), answers, strict=True)
        ]
        if not self.accepted.same(request, *trees):
            self._show(Difference(0, request, *trees))
        assert isinstance(answers[0], dict), answers[0]
        return answers[0]

    def _show(self, found: Difference) -> None:
        self.shapes[found.shape] += 1
        if self.shapes[found.shape] > 1:
            return
        lines = [f"== {found.request}"]
        for path, kafka, ottla in islice(differing(found.kafka, found.ottla), PLACES_MAX):
            told = f"  {path}: Kafka {str(kafka)[:SHOWN_MAX]}, Ottla {str(ottla)[:SHOWN_MAX]}"
            lines.append(told)
        console.print("\n".join(lines), markup=False)


def compare(both: Both) -> None:
    """Asks about everything that the sequences have left."""
    both.ask(ApiKey.API_VERSIONS, 3, {})
    both.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None})
    both.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, {"resource_types": []})
    both.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False})
    for name in ("", "1"):
        _describe_configs(both, settings.BROKER, name, list(settings.BY_TYPE[settings.BROKER]))
    found = both.ask(ApiKey.METADATA, 13, {"topics": None})
    for topic in found["topics"]:
        if topic["name"].startswith(PREFIX):
            name = topic["name"].replace(PREFIX, OWN)
            _describe_configs(both, settings.TOPIC, name)
            topics = [{"name": name}]
            both.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": topics})
            for part in topic["partitions"]:
                _compare_log(both, name, part["partition_index"])
    listed = both.ask(ApiKey.LIST_GROUPS, 5, {})["groups"]
    for group in sorted(_own(one["group_id"] for one in listed)):
        _compare_group(both, group)
    listed = both.ask(ApiKey.LIST_TRANSACTIONS, 2, {})["transaction_states"]
    for name in sorted(_own(one["transactional_id"] for one in listed)):
        both.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [name]})


def _own(names: Iterator[str]) -> Iterator[str]:
    return (name.replace(PREFIX, OWN) for name in names if name.startswith(PREFIX))


def _describe_configs(both: Both, kind: int, name: str, keys: list[str] | None = None) -> None:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    both.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource], "include_synonyms": True})


def _offset(both: Both, topic: str, partition: int, isolation: int, timestamp: int) -> int:
    part = {"partition_index": partition, "timestamp": timestamp}
    topics = [{"name": topic, "partitions": [part]}]
    body = {"replica_id": -1, "isolation_level": isolation, "topics": topics}
    answer = both.ask(ApiKey.LIST_OFFSETS, 7, body)
    offset: int = answer["topics"][0]["partitions"][0]["offset"]
    return offset


def _compare_log(both: Both, topic: str, partition: int) -> None:
    began_ms = both.kafka.meanings.began_ms
    for isolation in (0, 1):
        start, end, *_ = (
            _offset(both, topic, partition, isolation, timestamp)
            for timestamp in (FIRST, END, 0, began_ms - HOUR_MS, 1_600_000_000_000)
        )
        position: int | None = start
        while position is not None and position < end:
            position = _fetch(both, topic, partition, isolation, position)
    both.ask(
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        {"topics": [{"name": topic, "partition_indexes": [partition]}]},
    )
    part = {"partition": partition, "leader_epoch": 0}
    body = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [part]}]}
    both.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, body)


def _fetch(both: Both, topic: str, partition: int, isolation: int, offset: int) -> int | None:
    """Where to go on; None if there is nothing more."""
    part = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": BYTES_MAX}
    body = {
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": BYTES_MAX,
        "isolation_level": isolation,
        "topics": [{"topic": topic, "partitions": [part]}],
    }
    answer = both.ask(ApiKey.FETCH, 12, body)
    following = next_offset(bytes(answer["responses"][0]["partitions"][0]["records"] or b""))
    return following if following is not None and following > offset else None


def _compare_group(both: Both, group: str) -> None:
    both.ask(ApiKey.DESCRIBE_GROUPS, 6, {"groups": [group]})
    both.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": [group]})
    both.ask(ApiKey.SHARE_GROUP_DESCRIBE, 1, {"group_ids": [group]})
    whole = [{"group_id": group, "topics": None}]
    both.ask(ApiKey.OFFSET_FETCH, 9, {"groups": whole, "require_stable": False})
    both.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, {"groups": whole})
    _describe_configs(both, settings.GROUP, group)


def _new(kind: type[Server], folder: Path) -> Server:
    server = kind(folder)
    own = OTTLA_SETTINGS if kind is Ottla else {}
    server.properties = {key: str(value) for key, value in (SETTINGS | LONGER | own).items()}
    return server


def _started(server: Server) -> Peer:
    server.start()
    peer = Peer(server.name, server.port, str(server.data))
    settling.warm(peer)
    return peer


def round_trip(
    kind: type[Server], folder: Path, seeds: range, progress: Progress, *, killed: bool
) -> Both:
    """Fills one broker, and compares what both make of it."""
    servers: list[Server] = []
    task = progress.add_task("")
    try:
        servers.append(filled := _new(kind, folder / "filled"))
        peer = _started(filled)
        numbered = enumerate((seed, area) for seed in seeds for area in AREAS)
        for number, (seed, area) in numbered:
            progress.update(task, description=f"{kind.name} plays {area} {seed}")
            peer.begin(f"{PREFIX}{number:04d}x", time.time_ns() // 1_000_000)
            play(peer, AREAS[area](seed))
        peer.close()
        progress.update(task, description=f"{'kill -9' if killed else 'SIGTERM'}, and both open it")
        if killed:
            filled.kill()
        else:
            filled.stop()
        peers: list[Peer] = []
        for other in (SmallKafka, Ottla):
            servers.append(opening := _new(other, folder / other.__name__))
            shutil.copytree(filled.data, opening.data)
            peers.append(_started(opening))
            peers[-1].begin(PREFIX, time.time_ns() // 1_000_000)
        kafka, ottla = peers
        deleted = deleted_settings(filled.data / "__cluster_metadata-0")
        renamed = {name.replace(PREFIX, OWN): keys for name, keys in deleted.items()}
        both = Both(kafka, ottla, Accepted((*KNOWN, *CARRIED, come_back(renamed))))
        progress.update(task, description="both are asked")
        compare(both)
        return both
    finally:
        progress.remove_task(task)
        for server in servers:
            server.close()


@click.command()
@click.option("--seeds", default=6, show_default=True, help="Sequences of each area, each time.")
@click.option("--first", default=0, show_default=True, help="The first seed.")
def main(seeds: int, first: int) -> None:
    """Fills each broker with random sequences, ends it both ways, and opens it with both."""
    differ = 0
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    for kind in (Ottla, SmallKafka):
        for killed in (False, True):
            # Its name is in answers, and not to be taken for that of a sequence (PREFIX).
            folder = Path(tempfile.mkdtemp(prefix="both-open-"))
            try:
                with Progress(*columns, console=console, transient=True) as progress:
                    chosen = range(first, first + seeds)
                    both = round_trip(kind, folder, chosen, progress, killed=killed)
            finally:
                shutil.rmtree(folder)
            first += seeds
            how = "kill -9" if killed else "SIGTERM"
            count = both.shapes.total()
            differ += count
            console.print(f"filled by {kind.name}, {how}: {both.asked} questions, {count} differ")
            for reason, times in both.accepted.met.most_common():
                console.print(f"  known, {times} times: {reason}")
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
