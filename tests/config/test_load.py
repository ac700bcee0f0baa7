"""Settings from files, environment and overrides; what is refused, and with which words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.load import Loaded, key_of_variable, load
from ottla.config.types import ConfigError, Listener

KAFKAS_OWN_FILE = """
# A combined server, as Kafka's distribution has it.
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
IMAGES_ENVIRONMENT = {
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "KAFKA_NODE_ID": "2",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_LISTENERS": "PLAINTEXT_HOST://:9092,CONTROLLER://:29093,PLAINTEXT://:19092",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": (
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT"
    ),
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT_HOST://localhost:9092,PLAINTEXT://broker:19092",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "2@broker:29093",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "KAFKA_HEAP_OPTS": "-Xmx1G",
    "KAFKA_OPTS": "-D",
    "KAFKA_JMX_PORT": "9999",
    "KAFKA_LOG4J_ROOT_LOGLEVEL": "DEBUG",
    "KAFKA_JVM_PERFORMANCE_OPTS": "",
    "KAFKA_PORT": "tcp://10.0.0.1:9092",
    "KAFKA_PORT_9092_TCP_ADDR": "10.0.0.1",
    "KAFKA_SERVICE_PORT": "9092",
    "PATH": "/bin",
}


def given(*overrides: str, **environ: str) -> Loaded:
    return load(None, overrides, environ)


def from_file(tmp_path: Path, text: str, *overrides: str, **environ: str) -> Loaded:
    path = tmp_path / "server.properties"
    path.write_text(text)
    return load(path, overrides, environ)


def refusal(*overrides: str, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        given(*overrides, **environ)
    return caught.value.message


def test_nothing_configured_is_a_broker_on_this_machine() -> None:
    config = given().config

    assert config.node_id == 1
    assert config.process_roles == ("broker", "controller")
    assert config.broker_listeners == (Listener("PLAINTEXT", "localhost", 9092),)
    assert config.advertised == {}
    assert config.data_dirs == (str(Path("ottla-data").absolute()),)
    assert config.log_flush_interval_messages == 1
    assert given().notes == []


def test_a_directory_by_two_names_is_one() -> None:
    config = given("log.dirs=data,./data,other/../data/", "metadata.log.dir=./data").config

    assert config.data_dirs == (str(Path("data").absolute()),)
    assert config.metadata_dir == config.data_dirs[0]


@pytest.mark.parametrize(
    ("given_dirs", "cordoned"),
    [
        ("", []),
        ("*", ["data", "other"]),
        ("data,./data/", ["data"]),
        ("other, data", ["data", "other"]),
    ],
)
def test_log_dirs_that_get_no_new_partitions(given_dirs: str, cordoned: list[str]) -> None:
    config = given("log.dirs=data,other", f"cordoned.log.dirs={given_dirs}").config

    assert config.cordoned_dirs == {str(Path(one).absolute()) for one in cordoned}


@pytest.mark.parametrize("given_dirs", ["nowhere", "*,data", "data,", "*, *x"])
def test_only_log_dirs_can_be_cordoned(given_dirs: str) -> None:
    with pytest.raises(ConfigError, match=r"allowed is \* alone, or some of data, other\."):
        given("log.dirs=data,other", f"cordoned.log.dirs={given_dirs}")


def test_kafkas_own_server_properties_starts_as_it_is(tmp_path: Path) -> None:
    loaded = from_file(tmp_path, KAFKAS_OWN_FILE)

    assert loaded.config.broker_listeners == (Listener("PLAINTEXT", "", 9092),)
    assert loaded.config.advertised == {"PLAINTEXT": Listener("PLAINTEXT", "localhost", 9092)}
    assert loaded.origins["node.id"] == "server.properties:4"
    assert loaded.notes == [
        "accepted without effect: num.io.threads, num.network.threads",
        "not opened: CONTROLLER://:9093; a single node needs no controller listener",
    ]


def test_replicas_that_a_single_node_cannot_make_are_told_at_the_start() -> None:
    assert given(KAFKA_DEFAULT_REPLICATION_FACTOR="1").notes == []
    (note,) = given(KAFKA_DEFAULT_REPLICATION_FACTOR="3").notes
    assert note.startswith("default.replication.factor=3: a single node")


def test_the_images_environment() -> None:
    loaded = given(**IMAGES_ENVIRONMENT)
    config = loaded.config

    assert (config.node_id, config.broker_id) == (2, 2)
    assert config.ottla_cluster_id == "4L6g3nShT-eMCtK--X86sw"
    assert [str(one) for one in config.broker_listeners] == [
        "PLAINTEXT_HOST://:9092",
        "PLAINTEXT://:19092",
    ]
    assert config.advertised["PLAINTEXT"] == Listener("PLAINTEXT", "broker", 19092)
    assert loaded.config.group_initial_rebalance_delay_ms == 0
    assert loaded.without_effect == ()
    assert loaded.origins["listeners"] == "KAFKA_LISTENERS"


def test_variables_are_keys_in_capitals() -> None:
    assert key_of_variable("KAFKA_LOG_DIRS") == "log.dirs"
    assert key_of_variable("KAFKA_A__B_C___D") == "a_b.c-d"


def test_overrides_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    config = from_file(
        tmp_path,
        "num.partitions=2\nlog.roll.hours=2\nlog.retention.hours=2\n",
        "num.partitions=4",
        KAFKA_NUM_PARTITIONS="3",
        KAFKA_LOG_ROLL_HOURS="3",
    ).config

    assert (config.num_partitions, config.log_roll_hours, config.log_retention_hours) == (4, 3, 2)


def test_a_program_gives_values_of_any_kind() -> None:
    overrides = {"num.partitions": 3, "delete.topic.enable": False, "broker.rack": "a"}

    loaded = load(overrides=overrides, environ={})

    assert loaded.config.num_partitions == 3
    assert loaded.config.delete_topic_enable is False
    assert loaded.origins["broker.rack"] == "config"


def test_milliseconds_win_over_minutes_and_those_over_hours() -> None:
    hours = given("log.retention.hours=2", "log.roll.hours=3", "log.roll.jitter.hours=1").config
    minutes = given("log.retention.hours=2", "log.retention.minutes=3").config
    ms = given(
        "log.retention.minutes=3", "log.retention.ms=5", "log.roll.ms=6", "log.roll.jitter.ms=7"
    ).config

    assert (hours.retention_ms, hours.roll_ms, hours.roll_jitter_ms) == (
        7_200_000,
        10_800_000,
        3_600_000,
    )
    assert minutes.retention_ms == 180_000
    assert (ms.retention_ms, ms.roll_ms, ms.roll_jitter_ms) == (5, 6, 7)
    assert given("log.retention.hours=-1").config.retention_ms == -1
    assert given("log.flush.scheduler.interval.ms=9").config.flush_ms == 9


@pytest.mark.parametrize("name", ["log.retention.hours", "log.retention.minutes"])
def test_a_time_that_cannot_be_is_told_by_the_key_that_was_set(tmp_path: Path, name: str) -> None:
    sentence = f"{name}=0: allowed is -1 (for ever) or at least 1."
    with pytest.raises(ConfigError) as caught:
        from_file(tmp_path, f"num.partitions=2\n{name}=0\n")

    assert caught.value.message == f"server.properties:2: {sentence}"
    assert refusal(f"{name}=0") == f"--override: {sentence}"
    assert _message_of_python_config(**{name.replace(".", "_"): 0}) == sentence
    assert given(f"{name}=0", "log.retention.ms=5").config.retention_ms == 5


def test_settings_that_contradict_each_other_are_told_with_their_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        from_file(tmp_path, "\nlisteners=PLAINTEXT://:1,CONTROLLER://:1\n")

    assert caught.value.message.startswith("server.properties:2: listeners=")
    assert refusal(KAFKA_BROKER_ID="2", KAFKA_NODE_ID="1").startswith("KAFKA_BROKER_ID: broker.id=")
    assert refusal("queued.max.request.bytes=5").startswith("--override: queued.max")


@pytest.mark.parametrize(
    ("override", "least"),
    [
        ("log.roll.ms=0", 1),
        ("log.roll.jitter.ms=-1", 0),
        ("log.flush.interval.ms=-1", 0),
        ("log.flush.scheduler.interval.ms=0", 1),
    ],
)
def test_a_time_that_no_log_can_keep_is_refused(override: str, least: int) -> None:
    assert refusal(override).startswith(f"--override: {override}: Value must be at least {least}.")


def test_an_unknown_key_is_told_with_the_nearest_one() -> None:
    assert refusal("log.segment.byte=3") == (
        "--override: log.segment.byte=3: no such key. Did you mean log.segment.bytes?"
        " `ottla config` lists them all."
    )


def test_a_bad_value_is_told_with_what_is_allowed() -> None:
    assert refusal("log.segment.bytes=5") == (
        "--override: log.segment.bytes=5: Value must be at least 1048576."
        " Allowed is a whole number from 1048576 to 2147483647."
    )
    assert refusal("num.io.threads=many").endswith(
        "Not a number of type INT. Allowed is a whole number from 1 to 2147483647."
    )
    assert refusal("log.cleanup.policy=none").endswith(
        "Allowed is a comma-separated list of compact, delete."
    )
    assert refusal("compression.type=best") == (
        "--override: compression.type=best: String must be one of:"
        " uncompressed, zstd, lz4, snappy, gzip, producer."
    )


def test_an_empty_list_is_not_taken_for_the_default() -> None:
    assert refusal("log.dirs=") == (
        "--override: log.dirs=: Configuration 'log.dirs' must not be empty."
        " Allowed is a comma-separated list of one or more."
    )
    assert refusal(KAFKA_LOG_DIRS=" ").startswith("KAFKA_LOG_DIRS: log.dirs=: ")
    assert _message_of_python_config(log_dirs=()).startswith("log.dirs=: allowed is at least one")
    assert _message_of_python_config(log_dir=("a", "")).startswith("log.dir=a,: allowed is")


def test_everything_wrong_is_told_at_once() -> None:
    assert len(refusal("log.segment.bytes=5", "a=b", "num.partitions=x").splitlines()) == 3


@pytest.mark.parametrize(
    "override",
    [
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:admin",
        "sasl.enabled.mechanisms=PLAIN",
        "ssl.keystore.location=/etc/keys",
        "ssl.client.auth=required",
        "security.inter.broker.protocol=SSL",
        "listener.name.plaintext.sasl.jaas.config=x",
        "create.topic.policy.class.name=com.example.Policy",
        "delegation.token.secret.key=hunter2",
    ],
)
def test_a_key_that_asks_for_protection_stops_the_start(override: str) -> None:
    name, _, value = override.partition("=")

    message = refusal(override)

    assert message.startswith(f"--override: {name} asks for a protection")
    assert value not in message or value == "x"


def test_protection_left_at_kafkas_default_asks_for_nothing() -> None:
    config = given(
        "ssl.client.auth=none", "authorizer.class.name=", "sasl.enabled.mechanisms=GSSAPI"
    )

    assert config.without_effect == (
        "authorizer.class.name",
        "sasl.enabled.mechanisms",
        "ssl.client.auth",
    )


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("process.roles=controller", "the broker would have to be another process"),
        ("process.roles=broker", "the controller would have to be another process"),
        ("process.roles=broker,zookeeper", "allowed is broker,controller"),
        ("controller.quorum.voters=1@a:1,2@b:1", "controller 2 is another node"),
        ("controller.quorum.voters=a:1", "allowed is id@host:port"),
        ("controller.quorum.bootstrap.servers=a:1,b:1", "these are 2 controllers"),
        ("listeners=SSL://:9093", "asks for SSL"),
        ("listeners=PLAINTEXT://:9093,SASL_PLAINTEXT://:9092", "asks for SASL_PLAINTEXT"),
        ("listeners=PLAINTEXT://:99999", "not a listener"),
        ("listeners=localhost:9092", "not a listener"),
        ("listeners=PLAINTEXT://a..b:1", "listeners=PLAINTEXT://a..b:1: no host can have this"),
        (f"listeners=PLAINTEXT://{'a' * 64}:1", "with 1 to 63 characters between two points"),
        ("advertised.listeners=PLAINTEXT://.a:1", "no host can have this name"),
        ("ottla.telemetry.host=a..b", "ottla.telemetry.host=a..b: no host can have this name"),
        ("listeners=", "Configuration 'listeners' must not be empty"),
        ("process.roles=", "Configuration 'process.roles' must not be empty"),
        ("controller.listener.names=", "'controller.listener.names' must not be empty"),
        ("advertised.listeners=", "Configuration 'advertised.listeners' must not be empty"),
        ("group.share.assignors=sticky", "group.share.assignors"),
        ("group.consumer.assignors=", "'group.consumer.assignors' must not be empty"),
        ("group.share.assignors=", "'group.share.assignors' must not be empty"),
        ("group.coordinator.rebalance.protocols=consumer", "classic must be one of them"),
        (
            "group.coordinator.rebalance.protocols=",
            "'group.coordinator.rebalance.protocols' must not be empty",
        ),
        ("listeners=CONTROLLER://:9093", "none of them is for clients"),
        ("listeners=INSIDE://:1", "add INSIDE:PLAINTEXT to listener.security.protocol.map"),
        ("listeners=PLAINTEXT://:1,PLAINTEXT://:2", "a name of its own"),
        ("listeners=PLAINTEXT://:1,CONTROLLER://:1", "the same host and port"),
        ("advertised.listeners=PLAINTEXT://0.0.0.0:9092", "clients cannot connect"),
        ("advertised.listeners=SSL://a:9092", "there is no listener SSL"),
        ("listener.security.protocol.map=A:B", "is not NAME:PROTOCOL"),
        ("inter.broker.listener.name=INSIDE", "allowed is one of PLAINTEXT"),
        ("broker.id=7", None),
        ("log.retention.ms=0", "at least 1"),
        ("max.connections.per.ip=0", "nobody could connect"),
        ("max.connections.per.ip.overrides=a", "a is not host:number"),
        ("max.connections.per.ip.overrides=a:1,b:-1", "b:-1 is not host:number"),
        ("log.dirs=,", "Configuration 'log.dirs' values must not be empty"),
        ("log.dirs=a,,b", "Configuration 'log.dirs' values must not be empty"),
        ("log.dir=", "Configuration 'log.dir' must not be empty"),
        ("queued.max.request.bytes=5", "at least socket.request.max.bytes (104857600)"),
        (
            "group.consumer.session.timeout.ms=1",
            "allowed is 45000 to 60000, by group.consumer.min.",
        ),
        ("group.consumer.min.session.timeout.ms=70000", "up to group.consumer.max.session.timeout"),
        ("group.share.max.session.timeout.ms=40000", "up to group.share.max.session.timeout.ms ("),
        ("group.share.assignment.interval.ms=70000", "by group.share.min.assignment.interval.ms"),
        ("group.share.max.share.sessions=100", "at least group.share.max.size (200)"),
        ("group.share.record.lock.duration.ms=1000", "allowed is 15000 to 60000"),
        ("zookeeper.connect=zk:2181", "Kafka 4 has no such key any more"),
        ("config.providers=env", "write them out"),
        ("log.segment.bytes", "allowed is key=value"),
    ],
)
def test_settings_that_cannot_be(override: str, words: str | None) -> None:
    if words is None:
        assert given(override).config.node_id == 7
    else:
        assert words in refusal(override)


def test_a_group_whose_members_beat_too_late_cannot_be() -> None:
    for kind in ("group.consumer", "group.share"):
        late = [f"{kind}.heartbeat.interval.ms=45000", f"{kind}.max.heartbeat.interval.ms=45000"]
        assert f"it must be less than {kind}.session.timeout.ms (45000)" in refusal(*late)


def test_session_timeouts_that_nobody_can_have_are_told() -> None:
    loaded = load(overrides=["group.min.session.timeout.ms=2000000"], environ={})
    assert loaded.notes == [
        "group.min.session.timeout.ms=2000000 is above group.max.session.timeout.ms (1800000): no"
        " classic member can join a group"
    ]


def test_node_id_and_broker_id_must_agree() -> None:
    assert "set one, or both alike" in refusal("node.id=1", "broker.id=2")
    assert "set one, or both alike" in _message_of_python_config(node_id=1, broker_id=2)


def test_a_config_made_in_python_is_checked_too() -> None:
    config = BrokerConfig(node_id=3, listeners=("PLAINTEXT://[::1]:0",))

    assert config.broker_listeners == (Listener("PLAINTEXT", "::1", 0),)
    assert config.layers.static["node.id"] == "3"
    assert "no listener" not in _message_of_python_config(process_roles=("controller",))


def test_plugins_and_listener_prefixes_are_accepted() -> None:
    loaded = given("rsm.config.bucket=b", "listener.name.plaintext.max.connections=4")

    assert loaded.without_effect == (
        "listener.name.plaintext.max.connections",
        "rsm.config.bucket",
    )


def test_a_listeners_own_setting_that_acts_is_not_said_to_have_no_effect() -> None:
    loaded = given("listener.name.plaintext.max.connection.creation.rate=4")

    assert loaded.without_effect == ()


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes("\ufeffnum.partitions=3\nbroker.rack=\ufeffa\n".encode())
    loaded = load(path, environ={})

    assert loaded.config.num_partitions == 3
    assert loaded.config.broker_rack == "\ufeffa"
    assert loaded.origins["num.partitions"] == "server.properties:1"


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read: No such file"):
        load(tmp_path / "none")
    (tmp_path / "bytes").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(tmp_path / "bytes")
    (tmp_path / "escape").write_text("# one\nlog.dirs=C:\\users\n")
    with pytest.raises(ConfigError, match=r"escape, line 2: \\users is no escape"):
        load(tmp_path / "escape")


def test_ipv6_hosts_are_written_in_brackets() -> None:
    assert str(Listener("PLAINTEXT", "::1", 9092)) == "PLAINTEXT://[::1]:9092"


def test_the_large_table_is_not_read_for_keys_that_act() -> None:
    """It costs more than the rest of loading; a start must not pay for it."""
    program = (
        "import sys; from ottla.config.load import load;"
        "load(environ={}, overrides=['log.segment.bytes=2000000']);"
        "sys.exit('ottla.config.catalogue' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def _message_of_python_config(**settings: object) -> str:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig(**settings)  # type: ignore[arg-type]
    return caught.value.message


def test_variables_of_others_are_told_and_not_taken() -> None:
    others = {"KAFKA_BOOTSTRAP_SERVERS": "localhost:9092", "KAFKA_NUM_PARTITONS": "3"}
    others["KAFKA_CFG_NODE_ID"] = "2"
    others["KAFKA_PASSWORD"] = "secret"
    loaded = load(environ={**others, "KAFKA_NUM_PARTITIONS": "3"})
    assert loaded.config.num_partitions == 3
    assert loaded.notes == [
        "no settings of a broker: KAFKA_BOOTSTRAP_SERVERS, KAFKA_CFG_NODE_ID (node.id?),"
        " KAFKA_NUM_PARTITONS (num.partitions?), KAFKA_PASSWORD;"
        " `ottla config` lists those that are"
    ]
    assert loaded.misspelt_variables == [
        ("KAFKA_CFG_NODE_ID", "node.id"),
        ("KAFKA_NUM_PARTITONS", "num.partitions"),
    ]


def test_a_controller_elsewhere_is_told_not_to_be_asked() -> None:
    compose = {
        "KAFKA_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS": "ottla-1:9093",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://ottla-1:9092",
    }
    assert load(environ=compose).notes == []

    compose["KAFKA_ADVERTISED_LISTENERS"] = "PLAINTEXT://ottla-2:9092"
    assert load(environ=compose).notes == [
        "not asked: ottla-1:9093 of controller.quorum.bootstrap.servers; a single node is its own"
        " controller, and joins no other"
    ]


def test_a_variable_without_its_prefix_is_told() -> None:
    others = {"OTTLA_SERVICE_HOST": "10.0.0.1", "OTTLA_HOME": "/opt"}
    others["OTTLA_TELEMETRY_HOST"] = "tcp://10.0.0.7:9464"
    slips = {"OTTLA_TELEMETRY_PORT": "9000", "OTTLA_LOG_DIRS": "/data"}
    loaded = load(environ={**others, **slips})
    assert loaded.config.ottla_telemetry_port == 9464
    assert loaded.notes == [
        "not read: OTTLA_LOG_DIRS; the setting is called KAFKA_LOG_DIRS",
        "not read: OTTLA_TELEMETRY_PORT; the setting is called KAFKA_OTTLA_TELEMETRY_PORT",
    ]


def test_a_pair_of_escapes_is_the_character_that_java_has(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("broker.rack=\\ud83d\\ude00\n")

    assert load(file, environ={}).config.broker_rack == "\U0001f600"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("log.dirs=/a\\u0000b", "log.dirs=/a\\u0000b: NUL (\\u0000) stands in it"),
        ("broker.rack=\\ud83dx", "broker.rack=\\ud83dx: \\ud83d stands in it, which is one half"),
        ("log.dirs=/a/\\ude00", "log.dirs=/a/\\ude00: \\ude00 stands in it, which is one half"),
    ],
)
def test_what_no_file_and_no_record_can_hold_is_refused(
    tmp_path: Path, line: str, sentence: str
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"{line}\nnum.partitions=none\n")
    with pytest.raises(ConfigError) as caught:
        load(file, environ={})

    first, second = caught.value.message.split("\n")
    assert first.startswith(f"server.properties:1: {sentence}")
    assert "num.partitions" in second


def test_bytes_of_a_path_that_are_no_text_are_taken_from_a_command_line() -> None:
    loaded = load(environ={}, overrides=["log.dirs=/a\udcff"])
    assert loaded.config.data_dirs == ("/a\udcff",)

    with pytest.raises(ConfigError, match=r"--override: broker\.rack=\\udcff: "):
        load(environ={}, overrides=["broker.rack=\udcff"])
