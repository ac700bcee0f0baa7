"""What the compiler of the hot path is told of a class."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**_attributes):
        """Nothing, where the sources run as they are."""
        return lambda cls: cls
