"""The project's sources as the rules of the house see them: parsed once, named by their path."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOORS = ("broker", "client", "config", "protocol")


@dataclass(frozen=True)
class Source:
    """One Python file. `path` is relative to the checkout, `module` is its dotted name."""

    path: str
    module: str
    text: str
    tree: ast.Module

    def imports(self) -> Iterator[tuple[int, str]]:
        """(line, dotted name) of each import anywhere in the file, those inside functions too."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield node.lineno, alias.name
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute(node)
                yield node.lineno, base
                for alias in node.names:
                    yield node.lineno, f"{base}.{alias.name}"

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.module.split(".")
        keep = len(parts) - node.level + self.path.endswith("__init__.py")
        return ".".join([*parts[:keep], *([node.module] if node.module else [])])


def _load(path: Path) -> Source:
    relative = path.relative_to(ROOT)
    parts = list(relative.with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    text = path.read_text(encoding="utf-8")
    return Source(str(relative), ".".join(parts), text, ast.parse(text, str(relative)))


@cache
def sources(folder: str) -> tuple[Source, ...]:
    """Every Python file below a folder of the checkout, by path."""
    found = (ROOT / folder).rglob("*.py")
    hidden = ("node_modules", "target", ".venv", ".cache")
    return tuple(_load(path) for path in sorted(found) if not set(path.parts) & set(hidden))


def everything() -> tuple[Source, ...]:
    """The package, its tests, and the one module that may stand beside the package."""
    beside = tuple(_load(path) for path in sorted(ROOT.glob("*.py")))
    return sources("ottla") + sources("tests") + beside


def none_of(found: Iterable[str], rule: str) -> None:
    """Fails with the rule and one line for each finding."""
    lines = sorted(found)
    assert not lines, "\n".join([rule, *lines])
