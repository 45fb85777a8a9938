"""Learning rates as a function of the step alone, so that there is nothing to save and nothing to get out of step."""

from __future__ import annotations

import math

from secondsight.train.recipe import ScheduleSection


def factor(step: int, *, schedule: ScheduleSection, steps_per_epoch: int, total: int) -> float:
    """What the learning rates are multiplied by at ``step`` (counted from 0) of ``total``.

    warm-up: (step + 1) / w over the first w steps; then, with t = (step − w) / (total − w) in 0…1,
    cosine: final + (1 − final) (1 + cos πt) / 2; step: gamma^⌊epochs / every⌋; constant: 1.

    >>> factor(0, schedule=ScheduleSection(warmup=2.0), steps_per_epoch=5, total=50)
    0.1
    """
    warm = min(round(schedule.warmup * steps_per_epoch), total)
    if step < warm:
        return (step + 1) / warm
    if schedule.name == "cosine":
        t = (step - warm) / max(1, total - warm)
        return schedule.final + (1 - schedule.final) * (1 + math.cos(math.pi * t)) / 2
    if schedule.name == "step":
        return schedule.gamma ** math.floor(step / steps_per_epoch / schedule.every)
    return 1.0
