"""What embeds in the place of an index's model, and whether its vectors may stand beside those that are here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from secondsight.errors import ConfigError
from secondsight.inference.description import agree
from secondsight.inference.exported import Exported

if TYPE_CHECKING:
    from secondsight.index.collection import Index

FACT = "runtime"


def made_by(index: Index) -> str:
    """The runtime that made the first of these vectors."""
    return index.store.fact(FACT, "torch")


def check(index: Index, name: str) -> None:
    """Refuse a runtime whose vectors differ from those that are here by more than rounding."""
    own = made_by(index)
    if len(index) and not agree(own, name):
        raise ConfigError(
            f"{index.path} holds vectors that {own} made; those of {name} differ by more than 1e-3 and are not "
            f"mixed with them: --runtime {own}, or an index of its own"
        )


def use(index: Index, run: Any) -> None:
    """Let a runtime of ``inference``, or an exported file, embed; an index that is empty yet is then of that kind."""
    if isinstance(run, Exported):
        index.check_fingerprint(run.fingerprint(), str(run.path))
    check(index, run.name)
    if not len(index) and made_by(index) != run.name:
        index.store.set_fact(FACT, run.name)
    if isinstance(run, Exported):
        index.exported = run
    else:
        index.run = run


def ready(index: Index) -> None:
    """Before the first picture is embedded: choose the runtime, where that was put off, and check it."""
    if index.choose is not None:
        choose, index.choose = index.choose, None
        choose()
    check(index, getattr(index.exported or index.run, "name", "torch"))
