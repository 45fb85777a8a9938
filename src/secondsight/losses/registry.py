"""Every loss by its name, its options, and ``build``."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from secondsight.errors import ConfigError, nearest, require_known
from secondsight.losses.contract import Loss
from secondsight.losses.ensemble import BIER, HDC
from secondsight.losses.hierarchical import HTL
from secondsight.losses.margin import Margin
from secondsight.losses.npair import NPair
from secondsight.losses.pair import Binomial, Contrastive, Histogram, Lifted, MultiSimilarity
from secondsight.losses.proxy import ProxyAnchor, ProxyNCA
from secondsight.losses.ranking import SmoothAP
from secondsight.losses.triplet import SemiHard, Triplet

LOSSES: dict[str, type[Loss]] = {
    loss.name: loss
    for loss in (
        Triplet,
        SemiHard,
        Contrastive,
        Lifted,
        Binomial,
        Histogram,
        NPair,
        Margin,
        ProxyNCA,
        ProxyAnchor,
        MultiSimilarity,
        SmoothAP,
        HDC,
        BIER,
        HTL,
    )
}


def build(name: str, *, dim: int, classes: int, **options: Any) -> Loss:
    """The loss of that name for embeddings of ``dim`` dimensions and ``classes`` training classes.

    >>> build("triplet", dim=512, classes=100, margin=0.2).margin
    0.2
    """
    defaults = option_defaults(name)
    checked = {option: _checked(name, option, value, defaults) for option, value in options.items()}
    return LOSSES[name](dim=dim, classes=classes, **checked)


def option_defaults(name: str) -> dict[str, Any]:
    """The options of a loss and their default values.

    >>> option_defaults("binomial")
    {'alpha': 2.0, 'beta': 0.5, 'cost': 25.0}
    """
    parameters = inspect.signature(LOSSES[require_known("loss", name, LOSSES)]).parameters
    return {key: p.default for key, p in parameters.items() if key not in ("dim", "classes")}


def _checked(name: str, option: str, value: Any, defaults: dict[str, Any]) -> Any:
    """The value as the loss takes it: a recipe writes 1 for 1.0, and a list for a tuple."""
    if option not in defaults:
        near = nearest(option, defaults)
        hint = f"; did you mean {near!r}?" if near else ";"
        raise ConfigError(
            f"loss {name!r} has no option {option!r}{hint} It has: {', '.join(sorted(defaults)) or 'none'}"
        )
    kind = get_type_hints(LOSSES[name].__init__)[option]
    try:
        return TypeAdapter(kind).validate_python(tuple(value) if isinstance(value, list) else value, strict=True)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise ConfigError(
            f"loss {name!r}: option {option!r} cannot be {value!r}: {reason} (default: {defaults[option]!r})"
        ) from None
