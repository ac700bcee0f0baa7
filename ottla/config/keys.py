"""A key: what may stand for a setting, and how its text becomes a value.

Values are checked here with Kafka's own sentences, because clients see them: the same `Key.parse`
serves server.properties, the environment, topic settings and dynamic broker settings. Keys that
Ottla acts on are declared as pydantic fields (`broker.py`, `topic.py`, by `key()`), and `key_of`
reads the declaration; the others are rows of a table (`accepted.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import Field
from pydantic.fields import FieldInfo

from ottla.config.types import ConfigError, ConfigType

INT_MAX = 2**31 - 1
_RANGES = {
    ConfigType.SHORT: (-(2**15), 2**15 - 1),
    ConfigType.INT: (-(2**31), INT_MAX),
    ConfigType.LONG: (-(2**63), 2**63 - 1),
}
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DECIMAL_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)

Value = bool | int | float | str | tuple[str, ...] | None

Bool = Annotated[bool, ConfigType.BOOLEAN]
# Exclusive bounds, because a field's own inclusive ones stand beside them, not in their place.
_FITS_INT = Field(gt=-(2**31) - 1, lt=2**31)
_FITS_LONG = Field(gt=-(2**63) - 1, lt=2**63)
_FITS_SHORT = Field(gt=-(2**15) - 1, lt=2**15)
Short = Annotated[int, ConfigType.SHORT, _FITS_SHORT]
Int = Annotated[int, ConfigType.INT, _FITS_INT]
Long = Annotated[int, ConfigType.LONG, _FITS_LONG]
OptionalInt = Annotated[int | None, ConfigType.INT, _FITS_INT]
OptionalLong = Annotated[int | None, ConfigType.LONG, _FITS_LONG]
Double = Annotated[float, ConfigType.DOUBLE]
Text = Annotated[str, ConfigType.STRING]
OptionalText = Annotated[str | None, ConfigType.STRING]
Texts = Annotated[tuple[str, ...], ConfigType.LIST]
OptionalTexts = Annotated[tuple[str, ...] | None, ConfigType.LIST]
CleanupPolicy = Annotated[tuple[Literal["compact", "delete"], ...], ConfigType.LIST]
CompressionType = Annotated[
    Literal["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"], ConfigType.STRING
]
TimestampType = Annotated[Literal["CreateTime", "LogAppendTime"], ConfigType.STRING]
LogLevel = Annotated[Literal["debug", "info", "warning", "error"], ConfigType.STRING]
LogFormat = Annotated[Literal["auto", "console", "json"], ConfigType.STRING]
GzipLevel = Annotated[Literal[-1, 1, 2, 3, 4, 5, 6, 7, 8, 9], ConfigType.INT]


class Dynamic(Enum):
    """Whether a broker key may change while the broker runs, and for whom."""

    NO = "no"
    CLUSTER = "cluster"
    """For all brokers at once or for one of them."""
    BROKER = "broker"
    """For one broker only."""


@dataclass(slots=True, frozen=True)
class Key:
    """One setting. `default` is Kafka's text form, None where Kafka has null."""

    name: str
    type: ConfigType
    default: str | None
    sentence: str
    at_least: float | None = None
    at_most: float | None = None
    choices: tuple[str, ...] = ()
    any_case: bool = False
    dynamic: Dynamic = Dynamic.NO
    acts: bool = True
    internal: bool = False
    not_empty: bool = False
    """Of a list: it must have an entry, and none that is empty."""
    check: Callable[[Key, Value], None] | None = None
    """Of a list: it sees each entry as often as it is there."""

    @property
    def sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> Value:
        """The value that `text` stands for, of a list each entry once; ConfigError says what is
        wrong in Kafka's words."""
        value = _PARSERS[self.type](self, text.strip())
        if isinstance(value, int | float) and not isinstance(value, bool):
            self._check_range(value)
        if self.choices:
            self._check_choice(value)
        if self.not_empty:
            self._check_not_empty(value)
        if self.check is not None:
            self.check(self, value)
        return tuple(dict.fromkeys(value)) if isinstance(value, tuple) else value

    def refuse(self, value: object, reason: str) -> ConfigError:
        return ConfigError(f"Invalid value {value} for configuration {self.name}: {reason}")

    def allowed(self) -> str:
        """What may stand here, as the end of a sentence."""
        if self.choices:
            joined = ", ".join(self.choices)
            return f"a comma-separated list of {joined}" if self.is_list else f"one of {joined}"
        if self.type in _RANGES or self.type is ConfigType.DOUBLE:
            return _allowed_numbers(self)
        return _ALLOWED[self.type] + (" of one or more" if self.not_empty else "")

    @property
    def is_list(self) -> bool:
        return self.type is ConfigType.LIST

    def _check_range(self, value: float) -> None:
        if self.at_least is not None and not value >= self.at_least:
            raise self.refuse(render(value), f"Value must be at least {self.at_least}")
        if self.at_most is not None and not value <= self.at_most:
            raise self.refuse(render(value), f"Value must be no more than {self.at_most}")

    def _check_not_empty(self, value: Value) -> None:
        assert isinstance(value, tuple), self.name
        if not value:
            raise ConfigError(f"Configuration '{self.name}' must not be empty")
        if not all(value):
            raise ConfigError(f"Configuration '{self.name}' values must not be empty")

    def _check_choice(self, value: Value) -> None:
        for one in value if isinstance(value, tuple) else (render(value),):
            if one in self.choices or (
                self.any_case and one is not None and one.upper() in self.choices
            ):
                continue
            if self.name == "compression.gzip.level":
                raise self.refuse(one, "Value must be between 1 and 9 or equal to -1")
            case = " (case insensitive)" if self.any_case else ""
            raise self.refuse(one, f"String must be one of{case}: {', '.join(self.choices)}")


def key(
    default: Value,
    sentence: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    dynamic: Dynamic = Dynamic.NO,
    acts: bool = True,
    internal: bool = False,
    not_empty: bool = False,
    any_case_of: tuple[str, ...] = (),
) -> Any:
    """Declares a setting as a pydantic field; the field's annotation carries its type. A text is
    one of `any_case_of`, if there are any, in letters of any case. A list that is `not_empty` has
    an entry, and none that is empty."""
    extra = {
        "dynamic": dynamic.value,
        "acts": acts,
        "internal": internal,
        "not_empty": not_empty,
        "any_case_of": any_case_of,
    }
    return Field(
        default,
        ge=at_least,
        le=at_most,
        pattern=f"(?i)^({'|'.join(any_case_of)})$" if any_case_of else None,
        description=sentence,
        json_schema_extra=extra,  # type: ignore[arg-type]
    )


def dotted(field_name: str) -> str:
    """Kafka's name of a field."""
    return field_name.replace("_", ".")


def key_of(field_name: str, field: FieldInfo) -> Key:
    """The key that a field declares."""
    type_ = next(entry for entry in field.metadata if isinstance(entry, ConfigType))
    limits = field.metadata
    at_least = next((one.ge for one in limits if hasattr(one, "ge")), None)
    at_most = next((one.le for one in limits if hasattr(one, "le")), None)
    extra = field.json_schema_extra
    assert isinstance(extra, dict)
    any_case_of = extra["any_case_of"]
    assert isinstance(any_case_of, tuple)
    return Key(
        name=dotted(field_name),
        type=type_,
        default=render(field.default),
        sentence=field.description or "",
        at_least=at_least,
        at_most=at_most,
        choices=_choices(field.annotation) or tuple(any_case_of),
        any_case=bool(any_case_of),
        dynamic=Dynamic(extra["dynamic"]),
        acts=bool(extra["acts"]),
        internal=bool(extra["internal"]),
        not_empty=bool(extra["not_empty"]),
    )


def render(value: Value) -> str | None:
    """A value as Kafka writes it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return _java_double(value) if isinstance(value, float) else str(value)


def _choices(annotation: Any) -> tuple[str, ...]:
    if get_origin(annotation) is tuple:
        annotation = get_args(annotation)[0]
    return tuple(map(str, get_args(annotation))) if get_origin(annotation) is Literal else ()


def _java_double(value: float) -> str:
    """Double.toString: plain from 1e-3 to 1e7, else one digit before the point and an E."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    mantissa, _, exponent = f"{value!r}e0".partition("e")
    exponent = exponent.removesuffix("e0") or "0"
    digits = mantissa.lstrip("-").replace(".", "").strip("0") or "0"
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    power = int(exponent)
    if whole.strip("0"):
        power += len(whole.lstrip("0")) - 1
    else:
        power -= len(fraction) - len(fraction.lstrip("0")) + 1
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{power}"


def _allowed_numbers(key: Key) -> str:
    low, high = _RANGES.get(key.type, (None, None))
    at_least = low if key.at_least is None else key.at_least
    at_most = high if key.at_most is None else key.at_most
    kind = "a number" if key.type is ConfigType.DOUBLE else "a whole number"
    if at_least is None or at_most is None:
        return kind if at_least is None else f"{kind} of at least {at_least}"
    return f"{kind} from {at_least} to {at_most}"


def _parse_bool(key: Key, text: str) -> Value:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise key.refuse(text, "Expected value to be either true or false")
    return lowered == "true"


def _parse_whole_number(key: Key, text: str) -> Value:
    low, high = _RANGES[key.type]
    # A longer text cannot be in range; int() of a very long one is slow.
    if not _WHOLE_NUMBER.fullmatch(text) or len(text) > 40 or not low <= int(text) <= high:
        raise key.refuse(text, f"Not a number of type {key.type.name}")
    return int(text)


def _parse_double(key: Key, text: str) -> Value:
    if not _DECIMAL_NUMBER.fullmatch(text):
        raise key.refuse(text, "Not a number of type DOUBLE")
    return float(text)


def _parse_list(key: Key, text: str) -> Value:
    if not text:
        return ()
    return tuple(part.strip() for part in text.split(","))


def _parse_text(key: Key, text: str) -> Value:
    return text


_PARSERS: dict[ConfigType, Callable[[Key, str], Value]] = {
    ConfigType.BOOLEAN: _parse_bool,
    ConfigType.SHORT: _parse_whole_number,
    ConfigType.INT: _parse_whole_number,
    ConfigType.LONG: _parse_whole_number,
    ConfigType.DOUBLE: _parse_double,
    ConfigType.LIST: _parse_list,
    ConfigType.STRING: _parse_text,
    ConfigType.CLASS: _parse_text,
    ConfigType.PASSWORD: _parse_text,
}
_ALLOWED = {
    ConfigType.BOOLEAN: "true or false",
    ConfigType.LIST: "a comma-separated list",
    ConfigType.STRING: "a text",
    ConfigType.CLASS: "the name of a Java class",
    ConfigType.PASSWORD: "a secret",
}
