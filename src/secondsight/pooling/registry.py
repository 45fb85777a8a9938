"""One visible dict of all poolings, and ``build``, which wires a name to a module."""

from __future__ import annotations

import re
from typing import Any

import torch

from secondsight.errors import ConfigError, UnknownName
from secondsight.pooling.average import Average
from secondsight.pooling.bilinear import Bilinear
from secondsight.pooling.channelwise import GeM, Max
from secondsight.pooling.compact_bilinear import RandomMaclaurin, TensorSketch
from secondsight.pooling.contract import Pooling
from secondsight.pooling.covariance import ISqrtCov, MPNCov
from secondsight.pooling.ended import Ended
from secondsight.pooling.factorized import FactorizedBilinear
from secondsight.pooling.fisher import FisherNet, FisherVector
from secondsight.pooling.grassmann import Grassmann, GrassmannFull
from secondsight.pooling.hadamard import Hadamard
from secondsight.pooling.jcf import JCF
from secondsight.pooling.jcf_pairs import JCFPairs
from secondsight.pooling.lowrank import LowRankBilinear
from secondsight.pooling.mfa import MFAFV, MFAFVNet
from secondsight.pooling.mlb import MLB
from secondsight.pooling.projection import Projected
from secondsight.pooling.sta import ISTA, STA
from secondsight.pooling.vlad import VLAD, NetVLAD
from secondsight.pooling.vlat import VLAT

POOLINGS: dict[str, type[Pooling]] = {
    pooling.family: pooling
    for pooling in (
        Average,
        Max,
        GeM,
        Bilinear,
        TensorSketch,
        RandomMaclaurin,
        LowRankBilinear,
        FactorizedBilinear,
        Hadamard,
        MLB,
        Grassmann,
        GrassmannFull,
        MPNCov,
        ISqrtCov,
        VLAD,
        NetVLAD,
        FisherVector,
        FisherNet,
        MFAFV,
        MFAFVNet,
        VLAT,
        STA,
        ISTA,
        JCF,
        JCFPairs,
    )
}
"""Family → class. A name is a family and its numbers: ``jcf-32-8`` is of the family ``jcf``."""


def build(
    name: str, in_dim: int = 256, out_dim: int | None = 512, *, projection: str = "linear", **options: Any
) -> Pooling:
    """A pooling by name, e.g. ``build("jcf-32-8")``.

    Args:
        name: A family of ``POOLINGS`` and its numbers.
        in_dim: d, the size of a local feature.
        out_dim: D. Poolings whose size the method decides (``Pooling.takes_out_dim`` is False) are projected to it;
            None leaves them as they are.
        projection: How: ``linear`` (learned), ``pca`` or ``pca-whiten`` (from ``fit``).
        options: The class's own keywords. ``average``, ``gem`` and ``max`` also take ``power`` and ``whiten``, JCF's
            ending.

    >>> build("jcf-4", in_dim=8, out_dim=16).out_dim, build("vlad-4", in_dim=8, out_dim=16).out_dim
    (16, 16)
    """
    cls = POOLINGS[family(name)]
    if cls in (Average, Max, GeM) and out_dim is not None and options.keys() & {"power", "whiten"}:
        return _ended(name, in_dim, out_dim, **options)
    if out_dim is None and cls.takes_out_dim:
        raise ConfigError(f"{name} has no size of its own: give out_dim")
    size = {"out_dim": out_dim} if cls.takes_out_dim else {}
    try:
        pooling = cls.from_name(name, in_dim=in_dim, **size, **options)
    except TypeError as error:
        raise ConfigError(f"pooling {name!r}: {error}; see help({cls.__module__}.{cls.__name__})") from error
    if out_dim is None or pooling.out_dim == out_dim:
        return pooling
    return Projected(pooling, out_dim=out_dim, method=projection)


def _ended(
    name: str, in_dim: int, out_dim: int, *, power: float = 1.0, whiten: float | None = 0.25, **options: Any
) -> Ended:
    """A pooling of single channels with JCF's ending; averages are then taken as they are."""
    pooling = build(name, in_dim, in_dim, **options)
    if isinstance(pooling, Average):
        pooling.weight.requires_grad_(False).copy_(torch.eye(in_dim))
    return Ended(pooling, out_dim=out_dim, power=power, whiten=whiten)


def family(name: str) -> str:
    """The family that ``name`` belongs to: the longest one that starts it.

    >>> family("jcf-32-8")
    'jcf'
    """
    parts = name.split("-")
    for end in range(len(parts), 0, -1):
        if (found := "-".join(parts[:end])) in POOLINGS:
            return found
    raise UnknownName("pooling", re.sub(r"(-\d+)+$", "", name), POOLINGS)
