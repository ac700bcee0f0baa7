"""Reads a broker's settings: default < properties file < environment < --override.

Every setting is one of three kinds. Keys that Ottla acts on are fields of BrokerConfig. Kafka's
other keys are accepted when their value is one that Kafka takes, and named at the start. Anything
else is an error, as is a key that asks for a protection that this version does not have: a broker
that ignored it would stand open. All errors are told at once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ottla.config.broker import BrokerConfig, Layers, acting_keys, with_both_ids
from ottla.config.keys import Key
from ottla.config.properties import MalformedEscape, parse_properties
from ottla.config.types import ConfigError

_NOT_KEYS = re.compile(
    # The image's own variables, for the JVM and the scripts around it,
    r"KAFKA_(HEAP_OPTS|OPTS|HOME|VERSION|DEBUG|MODE|GC_LOG_OPTS|JVM_PERFORMANCE_OPTS"
    r"|LOG4J_.*|TOOLS_LOG4J_.*|JMX_.*"
    # and those that Kubernetes sets beside a service named kafka.
    r"|SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_[0-9]+_(TCP|UDP)(_.*)?)?)"
)
_PATHS = frozenset({"log.dirs", "log.dir", "metadata.log.dir"})
NAMED_MAX = 8
_PLUGIN_PREFIXES = ("rsm.config.", "rlmm.config.")


@dataclass(slots=True, frozen=True)
class Loaded:
    """A configuration, and what there is to say about it."""

    config: BrokerConfig
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where each setting that was given comes from, by dotted name."""
    without_effect: tuple[str, ...] = ()
    """Kafka's keys that were given and mean nothing here, sorted."""
    foreign_variables: tuple[str, ...] = ()
    """Variables of the environment that are called KAFKA_ and are no settings of a broker."""
    misnamed_variables: tuple[tuple[str, str], ...] = ()
    """Variables that begin with OTTLA_ and not KAFKA_, and by what name they would be taken."""

    @property
    def misspelt_variables(self) -> list[tuple[str, str]]:
        """Of the foreign ones those that look like a setting, and which."""
        near = ((one, _nearest_key(one)) for one in self.foreign_variables)
        return [(variable, key) for variable, key in near if key is not None]

    @property
    def notes(self) -> list[str]:
        """Sentences for the start."""
        notes = []
        if self.foreign_variables:
            names = ", ".join(_with_its_key(one) for one in self.foreign_variables)
            notes.append(f"no settings of a broker: {names}; `ottla config` lists those that are")
        for variable, right in self.misnamed_variables:
            notes.append(f"not read: {variable}; the setting is called {right}")
        least, most = (
            self.config.group_min_session_timeout_ms,
            self.config.group_max_session_timeout_ms,
        )
        if least > most:
            notes.append(
                f"group.min.session.timeout.ms={least} is above group.max.session.timeout.ms"
                f" ({most}): no classic member can join a group"
            )
        if self.without_effect:
            notes.append(f"accepted without effect: {_first_of(self.without_effect)}")
        if (factor := self.config.default_replication_factor) > 1:
            notes.append(
                f"default.replication.factor={factor}: a single node has no place for the replicas,"
                " and makes only topics that ask for one"
            )
        own_hosts = {"localhost", "127.0.0.1", "[::1]"}
        own_hosts.update(one.host for one in self.config.advertised.values())
        for server in self.config.controller_quorum_bootstrap_servers:
            if server.rpartition(":")[0] not in own_hosts:
                notes.append(
                    f"not asked: {server} of controller.quorum.bootstrap.servers; a single node is"
                    " its own controller, and joins no other"
                )
        for listener in self.config.controller_listeners:
            notes.append(f"not opened: {listener}; a single node needs no controller listener")
        return notes


def _first_of(keys: tuple[str, ...]) -> str:
    """A line for eyes: who starts from all of `ottla config` sets 150 of them."""
    named = ", ".join(keys[:NAMED_MAX])
    more = len(keys) - NAMED_MAX
    return named if more <= 0 else f"{named} and {more} more; `ottla config` marks them"


@dataclass(slots=True, frozen=True)
class Setting:
    """One text for one key, and where it stands."""

    name: str
    text: str
    origin: str


def load(
    properties_file: str | os.PathLike[str] | None = None,
    overrides: Iterable[str] | Mapping[str, object] = (),
    environ: Mapping[str, str] | None = None,
) -> Loaded:
    """The settings of a broker; ConfigError lists everything that is wrong with them.

    `overrides` are `key=value` texts, or a mapping of keys to values of any kind; a list or a tuple
    is the comma-separated list of its entries. `environ` is the
    process's environment unless another is given; a broker inside somebody's program gives {}.
    """
    settings: dict[str, Setting] = {}
    if properties_file is not None:
        settings.update(_from_file(os.fspath(properties_file)))
    foreign = []
    environ = os.environ if environ is None else environ
    for name, setting in _from_environment(environ):
        if _is_foreign(setting):
            foreign.append(setting.origin)
        else:
            settings[name] = setting
    settings.update(_from_overrides(overrides))
    problems = [problem for setting in settings.values() for problem in _problems(setting)]
    if problems:
        raise ConfigError("\n".join(problems))
    return Loaded(
        config=_assembled(settings),
        origins={setting.name: setting.origin for setting in settings.values()},
        without_effect=tuple(sorted(name for name in settings if not _acts(name))),
        foreign_variables=tuple(foreign),
        misnamed_variables=tuple(_misnamed(environ)),
    )


def _from_file(path: str) -> Iterator[tuple[str, Setting]]:
    """The settings of a file of UTF-8 text. A byte order mark at its head, as editors on Windows
    write it, is passed over; Java takes it for a part of the first key, and loses that setting."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text.") from error
    try:
        properties = parse_properties(text)
    except MalformedEscape as error:
        raise ConfigError(f"{path}, {error}") from error
    for one in properties:
        origin = f"{os.path.basename(path)}:{one.line}"
        yield one.name, Setting(one.name, one.value.strip(), origin)


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, Setting]]:
    for variable, text in sorted(environ.items()):
        if variable == "CLUSTER_ID":
            yield "ottla.cluster.id", Setting("ottla.cluster.id", text.strip(), variable)
        elif variable.startswith("KAFKA_") and not _NOT_KEYS.fullmatch(variable):
            name = key_of_variable(variable)
            yield name, Setting(name, text.strip(), variable)


def _with_its_key(variable: str) -> str:
    near = _nearest_key(variable)
    return f"{variable} ({near}?)" if near else variable


def _nearest_key(variable: str) -> str | None:
    """The key that a variable was likely meant for if it is misspelt by a letter or two."""
    from ottla.config import catalogue

    name = key_of_variable(variable).removeprefix("cfg.")  # Bitnami's image has KAFKA_CFG_
    return catalogue.nearest(name, catalogue.broker_keys(), likeness=0.9)


def key_of_variable(variable: str) -> str:
    """The key that a KAFKA_ variable stands for: `_` is a point, `__` is `_`, `___` is `-`."""
    name = variable.removeprefix("KAFKA_").lower().replace("_", ".")
    return name.replace("...", "-").replace("..", "_")


def _misnamed(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for variable, text in sorted(environ.items()):
        # Kubernetes sets such addresses beside a service named ottla-telemetry.
        if not variable.startswith("OTTLA_") or text.startswith(("tcp://", "udp://")):
            continue
        for right in (f"KAFKA_{variable}", f"KAFKA_{variable.removeprefix('OTTLA_')}"):
            if key_of_variable(right) in acting_keys():
                yield variable, right


def _from_overrides(
    overrides: Iterable[str] | Mapping[str, object],
) -> Iterator[tuple[str, Setting]]:
    if isinstance(overrides, Mapping):
        for name, value in overrides.items():
            yield name, Setting(name, _text_of(name, value).strip(), "config")
        return
    for override in overrides:
        name, equals, text = override.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ConfigError(f"--override {override}: allowed is key=value.")
        yield name, Setting(name, text.strip(), "--override")


def _text_of(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, list | tuple):
        return str(value)
    entries = [str(one) for one in value]
    for entry in entries:
        if "," in entry:
            raise ConfigError(f"config: {name}: {entry!r} has a comma, which parts entries.")
    return ",".join(entries)


def _problems(setting: Setting) -> Iterator[str]:
    """Sentences on what is wrong with one setting."""
    key = acting_keys().get(setting.name)
    if key is None:
        problem = _problem_with_other_key(setting)
        if problem is not None:
            yield problem
        return
    problem = _problem_with_characters(setting)
    if problem is not None:
        yield problem
        return
    try:
        key.parse(setting.text)
    except ConfigError as error:
        yield _refusal(setting, error.message, key)


def _problem_with_characters(setting: Setting) -> str | None:
    """What no file's name and no record can hold, and what would end the start without a word."""
    text = setting.text
    shown = text.replace("\0", "\\u0000").encode("utf-8", "backslashreplace").decode()
    where = f"{setting.origin}: {setting.name}={shown}"
    if "\0" in text:
        return f"{where}: NUL (\\u0000) stands in it, and may not. Take it out."
    try:
        # Bytes of a path that are no UTF-8 come from a command line as halves of pairs.
        _ = os.fsencode(text) if setting.name in _PATHS else text.encode()
    except UnicodeEncodeError as error:
        half = ord(text[error.start])
        return (
            f"{where}: \\u{half:04x} stands in it, which is one half of a pair and no character."
            " Write the other half, too, or the character itself in UTF-8."
        )
    return None


def _problem_with_other_key(setting: Setting) -> str | None:
    from ottla.config import catalogue

    shown = f"{setting.origin}: {setting.name}={setting.text}"
    if catalogue.asks_for_protection(setting.name, setting.text):
        # The value may be a secret.
        return (
            f"{setting.origin}: {setting.name} asks for a protection that this version does not"
            " have; the broker does not start rather than run without it. Take the key out to run"
            " unprotected."
        )
    if setting.name == "config.providers" and setting.text:
        return f"{shown}: values cannot be filled in from elsewhere; write them out."
    _, name = catalogue.split_listener_prefix(setting.name)
    key = catalogue.broker_keys().get(name)
    if key is not None:
        try:
            key.parse(setting.text)
        except ConfigError as error:
            return _refusal(setting, error.message, key)
        return None
    if name.startswith(_PLUGIN_PREFIXES):
        return None
    if name in catalogue.REMOVED:
        heir = catalogue.REMOVED[name]
        instead = f"; {heir} has taken its place" if heir else " and nothing is needed instead"
        return f"{shown}: Kafka 4 has no such key any more{instead}. Take it out."
    near = catalogue.nearest(name, catalogue.broker_keys())
    hint = f" Did you mean {near}?" if near else ""
    return f"{shown}: no such key.{hint} `ottla config` lists them all."


def _is_foreign(setting: Setting) -> bool:
    """Whether a variable is somebody else's: a client beside us may have its own KAFKA_... in the
    same environment. It is told, as a slip in a name must be; Kafka, too, only warns."""
    if setting.name in acting_keys() or setting.name == "config.providers":
        return False
    from ottla.config import catalogue

    _, name = catalogue.split_listener_prefix(setting.name)
    return not (
        name in catalogue.broker_keys()
        or name in catalogue.REMOVED
        or name.startswith(_PLUGIN_PREFIXES)
        or catalogue.asks_for_protection(setting.name, setting.text)
    )


def _refusal(setting: Setting, reason: str, key: Key) -> str:
    reason = reason.rpartition(f"for configuration {setting.name}: ")[2]
    shown = f"{setting.origin}: {setting.name}={setting.text}: {reason}."
    if key.choices and not key.is_list and reason.endswith(", ".join(key.choices)):
        return shown
    return f"{shown} Allowed is {key.allowed()}."


def _assembled(settings: Mapping[str, Setting]) -> BrokerConfig:
    static = with_both_ids({setting.name: setting.text for setting in settings.values()})
    try:
        return BrokerConfig.assemble(Layers(static=static))
    except ConfigError as error:
        setting = settings.get(error.name or "")
        if setting is None:
            raise
        raise ConfigError(f"{setting.origin}: {error.message}", name=error.name) from error


def _acts(name: str) -> bool:
    key = acting_keys().get(name)
    if key is None and name.startswith("listener.name."):
        from ottla.config import catalogue

        key = catalogue.setting_key(name)
    return key is not None and key.acts
