"""`ottla serve`: one broker in the foreground, until SIGTERM, SIGINT or SIGHUP."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import socket
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import click

from ottla import __version__
from ottla.broker.broker import Broker
from ottla.broker.faults import EXIT_STATUS, FULL_DISK_ERRORS, StorageLost
from ottla.broker.handlers.topic_names import INTERNAL_TOPICS
from ottla.broker.kernel_sends import KernelSends
from ottla.broker.log.directories import BusyLogDir, LogDirError, UnusableLogDir
from ottla.broker.metadata.image import TOPIC_RESOURCE
from ottla.broker.network.moderation import Moderation
from ottla.broker.open_files import FEW_CONNECTIONS, WHAT_TO_DO
from ottla.broker.ports import Events
from ottla.broker.posix import widen_descriptor_table
from ottla.broker.processors import LinuxProcessors
from ottla.broker.quorum.raft import QuorumError
from ottla.broker.replication.replicas import Partition
from ottla.broker.telemetry.logs import open_log
from ottla.compiled import build
from ottla.config.cautions import cautions, overruled
from ottla.config.load import Loaded, load
from ottla.config.types import LONG_MAX, written
from ottla.output import tell
from ottla.protocol.errors import KafkaError

EX_UNAVAILABLE = 69
"""sysexits.h: another start may go better, as when a port or a directory is free again."""
EX_SOFTWARE = 70
"""sysexits.h: a broken invariant of ours ended the broker."""
EX_CONFIG = 78
"""sysexits.h: the same start again would fail again; packaging/ottla.service tries none."""
SOUND_DIRS = (
    "Give log.dirs directories on a sound disk that has room and that this user may write to."
)
GONE_DIRS = (
    "Somebody has removed or renamed files there while the broker ran: end the broker first, or"
    " give log.dirs a directory that nothing tidies up."
)
HOW_TO_SET = (
    "Each setting is an --override (--override listeners=PLAINTEXT://localhost:9192), and a file of"
    " them a --config (--config server.properties)."
)
RELAXED_AT = LONG_MAX
WAYS_OUT = {
    errno.EADDRINUSE: "Another broker may have the port, Ottla or Kafka; `ss -ltnp` names who has."
    " Stop that one, or choose another port (--override listeners=PLAINTEXT://localhost:9192)."
    " Beside another Ottla this one needs its own log.dirs, too (--override log.dirs=DIRECTORY),"
    " and for its metrics its own ottla.telemetry.port (0 takes a free port).",
    errno.EADDRNOTAVAIL: "Name a host of this machine, or none for all: PLAINTEXT://:9092.",
    errno.EACCES: "Choose a port above 1023 with listeners, or run as a user who may have it.",
}
"""What to do when `listeners` cannot be opened."""
OPEN_TO_ALL = (
    "no client is asked who it is: whoever reaches these addresses may read, write and delete"
    " everything; listen on this machine alone (listeners=PLAINTEXT://127.0.0.1:9092), or have a"
    " firewall let in only those that you trust"
)
TELEMETRY_OPEN_TO_ALL = (
    "nobody is asked who it is: whoever reaches this address may read the names of topics, groups"
    " and clients; serve it on this machine alone (ottla.telemetry.host=127.0.0.1),"
    " or have a firewall let in only those that you trust"
)
COLLECTION_MS = 60_000
NEVER = 2**31 - 1


@click.command("serve", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--config", "file", metavar="FILE", help="Read settings from a server.properties.")
@click.option(
    "--override", "overrides", metavar="KEY=VALUE", multiple=True, help="Set one key; repeatable."
)
def command(file: str | None, overrides: tuple[str, ...]) -> int:
    """Run a broker in the foreground.

    Nothing needs to be configured: without options it listens on localhost:9092, keeps its data
    in ./ottla-data, and creates topics on first use, with num.partitions partitions.

    \b
    Settings have Kafka's names; `ottla config` lists them. For example:
      ottla serve --override log.dirs=/srv/ottla
      ottla serve --override listeners=PLAINTEXT://0.0.0.0:9092
      ottla serve --override num.partitions=6
      ottla serve --config server.properties

    KAFKA_... environment variables are read as the apache/kafka image reads them. Ctrl-C,
    SIGTERM and SIGHUP (its terminal was closed; nohup keeps it) stop the broker cleanly, SIGUSR1
    writes its state to standard error.

    A second broker on the same machine needs its own listeners and log.dirs, and for its
    metrics its own ottla.telemetry.port (0 takes a free port, -1 opens none).
    """
    loaded = load(file, overrides)
    return _run(loaded)


def main(arguments: Sequence[str]) -> int:
    """Runs the command; the exit status is 0 after a clean stop."""
    try:
        status = command.main(list(arguments), prog_name="ottla serve", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        if isinstance(error, click.UsageError):
            click.echo(HOW_TO_SET, err=True)
        return error.exit_code
    return int(status or 0)


def _run(loaded: Loaded) -> int:
    try:
        if sys.platform == "win32":
            return asyncio.run(_serve(loaded))
        import uvloop

        return uvloop.run(_serve(loaded))
    except StorageLost as error:
        way_out = GONE_DIRS if error.number == errno.ENOENT else SOUND_DIRS
        return _refuse(f"{error}. {way_out}", EXIT_STATUS)
    except BusyLogDir as error:
        return _refuse(str(error), EX_UNAVAILABLE)
    except UnusableLogDir as error:
        return _refuse(f"{error} {SOUND_DIRS}", EX_CONFIG)
    except (LogDirError, QuorumError) as error:
        return _refuse(str(error), EX_CONFIG)
    except OSError as error:
        # What this user may not do, as to have a port below 1024, the next start may not either.
        status = EX_CONFIG if isinstance(error, PermissionError) else EX_UNAVAILABLE
        return _refuse(_sentence(error, loaded), status)
    except KafkaError as error:  # the metadata log has no room for this broker's registration
        reason = _sentence(error.disk_error, loaded) if error.disk_error else str(error)
        return _refuse(f"the metadata log cannot be written: {reason}", EX_UNAVAILABLE)
    except AssertionError as error:
        return _refuse(f"a broken invariant ended the broker: {error}", EX_SOFTWARE)


async def _serve(loaded: Loaded) -> int:
    config = loaded.config
    events = open_log(config.ottla_log_level, config.ottla_log_format, is_ours=True)
    broker = Broker(config, events=events)
    widen_descriptor_table()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(partial(_callback_failed, broker, events))
    stop = asyncio.Event()
    # Before the start: who waits for an open port may stop us the moment after it opens.
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as nohup has it
        numbers.append(signal.SIGHUP)
    starting = loop.create_task(broker.start(), name="start")
    for number in numbers:
        loop.add_signal_handler(number, _told_to_end, starting, stop, events)
    loop.add_signal_handler(signal.SIGUSR1, _show_state, broker)
    try:
        await starting
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
        await broker.stop()  # it has ended: raises what went wrong with that
        events.info("broker_stopped")
        return 0
    try:
        _tame_collector(broker)
        _share_processors(broker)
        tell_started(broker, loaded, events)
        say_ready(broker, loaded)
        _notify("READY=1")
        broker.failed.add_done_callback(lambda _: stop.set())
        await stop.wait()
        _notify("STOPPING=1")
    finally:
        await broker.stop()
    events.info("broker_stopped")
    return 0


def _told_to_end(starting: asyncio.Task[None], stop: asyncio.Event, events: Events) -> None:
    if starting.cancel() and not stop.is_set():
        events.info("start_given_up", reason="a signal; what is under way on the disk ends first")
    stop.set()


def _callback_failed(
    broker: Broker, events: Events, loop: asyncio.AbstractEventLoop, context: dict[str, Any]
) -> None:
    """What a timer or a callback raised: nobody awaits it, and a broken invariant must not pass."""
    error = context.get("exception")
    events.error("callback_failed", what=context.get("message"), exc_info=error)
    if isinstance(error, AssertionError):
        broker.fail(error)


def _tame_collector(broker: Broker) -> None:
    """Full garbage collections run as a job, between requests, and not where an allocation happens
    to cause one; what the start made is left out of them for good. Only here, where the process is
    ours: in somebody's program the collector is theirs."""

    def collect() -> None:
        gc.collect()

    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, NEVER)
    broker.scheduler.every("garbage-collection", COLLECTION_MS, collect)


def _share_processors(broker: Broker) -> None:
    """The loop rests where many wait for the processors, which somebody's own is not to; and many
    small answers leave together, so that the first wakes nobody before the last has left."""
    processors = LinuxProcessors.open(asyncio.get_running_loop())
    if processors is not None:
        broker.server.moderate(Moderation(processors))
    broker.server.turn_end.joint = KernelSends.open()


def say_ready(broker: Broker, loaded: Loaded) -> None:
    """What a person wants to know at the start, in five lines."""
    config, in_force = loaded.config, broker.rooms.config
    address = broker.bootstrap_servers
    data_dirs = ", ".join(config.data_dirs)
    told = ", ".join(map(str, broker.advertised_listeners)) or "the address they came by"
    lines = [
        f"ottla is ready on {', '.join(str(one) for one in broker.listeners)}; clients are told "
        f"{told}",
        f"  data        {data_dirs}  (cluster {broker.logs.cluster_id})",
        f"  durability  {_durability(in_force.log_flush_interval_messages)}",
    ]
    port = config.ottla_telemetry_port
    where = "none: ottla.telemetry.port=-1" if port < 0 else f"none: port {port} is in use"
    if broker.telemetry_address is not None:
        where = f"http://{broker.telemetry_address}/metrics, /events, /livez, /readyz"
    lines.append(f"  metrics     {where}")
    lines.append(f"  try         echo hello | kcat -b {address} -P -t greetings")
    lines += [f"  note        {note}" for note in _notes(broker, loaded)]
    tell("\n".join(lines), sys.stdout)


def tell_started(broker: Broker, loaded: Loaded, events: Events) -> None:
    """The same for who reads the log, which may be all that is kept of a start; and that nobody is
    asked who they are, where others than this machine can ask."""
    config = loaded.config
    events.info(
        "broker_started",
        version=__version__,
        build=build(),
        node_id=config.node_id,
        cluster_id=broker.logs.cluster_id,
        listeners=[str(one) for one in broker.listeners],
        log_dirs=list(config.data_dirs),
        flush_messages=broker.rooms.config.log_flush_interval_messages,
        telemetry=broker.telemetry_address,
        notes=_notes(broker, loaded),
    )
    for variable, key in loaded.misspelt_variables:
        events.warning("setting_misspelt", variable=variable, did_you_mean=key)
    if broker.connections_max < FEW_CONNECTIONS:
        events.warning("few_open_files", connections_max=broker.connections_max, fix=WHAT_TO_DO)
    if broker.exposed_listeners:
        events.warning(
            "listeners_unauthenticated",
            listeners=[str(one) for one in broker.exposed_listeners],
            reason=OPEN_TO_ALL,
        )
    if broker.telemetry_port is not None and broker.telemetry_is_exposed:
        bound = written(config.ottla_telemetry_host, broker.telemetry_port)
        events.warning("telemetry_unauthenticated", telemetry=bound, reason=TELEMETRY_OPEN_TO_ALL)


def _notes(broker: Broker, loaded: Loaded) -> list[str]:
    """What there is to say of settings: of those of the start, and of those in force."""
    image = broker.quorum.image
    own = {
        topic: image.configs.get(TOPIC_RESOURCE, topic)
        for topic in image.topics.by_name
        if topic not in INTERNAL_TOPICS
    }
    in_force = broker.rooms.config
    return [*loaded.notes, *overruled(in_force, loaded.origins), *cautions(in_force, own)]


def _durability(flush_messages: int) -> str:
    if flush_messages == 1:
        return "log.flush.interval.messages=1: what is acknowledged is on disk (Kafka's differs)"
    if flush_messages == RELAXED_AT:
        return "Kafka's own: acknowledged from the page cache, written when the system likes"
    lost = flush_messages - 1
    return f"log.flush.interval.messages={flush_messages}: up to {lost} records may be lost"


def _sentence(error: OSError, loaded: Loaded) -> str:
    text = error.strerror or str(error)
    if error.errno in FULL_DISK_ERRORS:
        dirs = ", ".join(loaded.config.data_dirs)
        return f"{text} in {dirs} (log.dirs). Make room there, and start again."
    if error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {text}."
    if not text.startswith("cannot listen"):
        return text
    return f"{text}. {WAYS_OUT.get(error.errno or 0, 'Correct listeners.')}"


def _show_state(broker: Broker) -> None:
    """What there is of it: the signal may come while it starts."""
    parts = (broker.logs, getattr(broker, "quorum", None), broker.scheduler)
    lines = [repr(part) for part in parts if part is not None]
    lines += [repr(partition) for partition in sorted(broker.replicas, key=_internal_last)]
    server = getattr(broker, "server", None)
    lines += [repr(connection) for connection in (server.connections if server else ())]
    tell("\n".join(lines), sys.stderr)


def _internal_last(partition: Partition) -> tuple[bool, str, int]:
    return partition.topic in INTERNAL_TOPICS, partition.topic, partition.index


def _notify(state: str) -> None:
    """systemd's notification (Type=notify); nothing without a NOTIFY_SOCKET."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        try:
            sock.sendto(state.encode(), address)
        except OSError as error:
            tell(f"ottla: systemd was not told {state}: {error}", sys.stderr)


def _refuse(sentence: str, status: int) -> int:
    tell(f"ottla: {sentence}", sys.stderr)
    return status
