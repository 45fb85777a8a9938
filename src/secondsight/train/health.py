"""Is the run still learning? Warnings in words, with what to try."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from secondsight.data import ImageSet
from secondsight.errors import RunError
from secondsight.losses import Loss
from secondsight.train.step import Outcome

COLLAPSED = 0.99  # mean cosine between images of a batch above which they are one point for all purposes
STUCK = 20  # steps for which the loss stays at its margin before that is said
_TRY = (
    "try a lower learning rate (optimizer.lr, head_lr), a longer warm-up (schedule.warmup), another loss (loss.name = "
    '"proxy-anchor" does not collapse easily), or more classes in a batch'
)


def mean_cosine(z: Tensor) -> float:
    """Mean cosine over all pairs of different rows: (‖Σu‖² − B) / (B² − B); 1 when all images are one point."""
    u = torch.nn.functional.normalize(z.detach().double(), dim=1)
    b = len(u)
    return float((u.sum(0).square().sum() - b) / max(1, b * b - b))


def check_finite(outcome: Outcome, *, images: ImageSet, batch: Sequence[int], epoch: int, step: int) -> None:
    """Stop at a loss, an embedding or a gradient that is not a number, and name the images."""
    if outcome.finite:
        return
    guilty = np.flatnonzero((~outcome.z.isfinite().all(1)).cpu().numpy())
    what = (
        "these images have embeddings that are not finite"
        if len(guilty)
        else "every embedding is finite; the batch was"
    )
    if not len(guilty):
        guilty = np.flatnonzero((~outcome.gradient.isfinite().all(1)).cpu().numpy())
        if len(guilty):
            what = "the gradient is not finite at these images"
    rows = guilty if len(guilty) else np.arange(len(batch))
    paths = [str(images.path(int(batch[row]))) for row in rows[:8]]
    more = f" and {len(rows) - 8} more" if len(rows) > 8 else ""
    raise RunError(
        f"the loss became {outcome.loss} at step {step} (epoch {epoch}); {what}: {', '.join(paths)}{more}. Nothing "
        "was updated with it, and the checkpoints are sound. Look at these images, or start a new run with a lower "
        "learning rate (optimizer.lr) or a lower optimizer.clip"
    )


class Watch:
    """Looks at every step and every validation, and says each kind of trouble once."""

    def __init__(self, loss: Loss):
        self.collapsed = loss.collapsed
        self.said: list[str] = []
        self.stuck = 0
        self.best = 0.0

    def step(self, outcome: Outcome, *, step: int) -> list[str]:
        """Trouble that this step shows."""
        found = []
        if len(outcome.z) > 1 and (cosine := mean_cosine(outcome.z)) > COLLAPSED:
            found += self._once(
                "collapse",
                f"the embedding is collapsing: at step {step} all images of the batch point the same way (mean cosine "
                f"{cosine:.4f}); {_TRY}",
            )
        at_margin = self.collapsed is not None and abs(outcome.loss - self.collapsed) < 1e-3 * abs(self.collapsed)
        self.stuck = self.stuck + 1 if at_margin else 0
        if self.stuck >= STUCK:
            found += self._once(
                "margin",
                f"the loss has been its margin ({self.collapsed}) for {STUCK} steps up to step {step}: positives and "
                f"negatives are equally far, so nothing is learned; {_TRY}",
            )
        return found

    def validation(self, figures: Mapping[str, float], labels: np.ndarray, *, k: int, step: int) -> list[str]:
        """Trouble that Recall@K shows."""
        recall = figures[f"recall@{k}"]
        chance, best, self.best = chance_recall(labels, k), self.best, max(self.best, recall)
        # With two classes chance is a half: what luck brings over it (three standard errors) depends on the images, and
        # half-way from chance to perfect is more than luck however few they are.
        luck = 3 * math.sqrt(chance * (1 - chance) / len(labels))
        if recall <= min(2 * chance, chance + luck, (1 + chance) / 2):
            return self._once(
                "chance",
                f"validation recall@{k} at step {step} is {recall:.3f}, as good as chance ({chance:.3f}): the "
                f"embedding does not tell the classes apart; {_TRY}",
            )
        if recall < best / 2:
            return self._once(
                "fall",
                f"validation recall@{k} at step {step} fell to {recall:.3f} from {best:.3f}; best/ keeps the "
                f"better model; {_TRY}",
            )
        return []

    def state(self) -> dict:
        return {"said": self.said, "stuck": self.stuck, "best": self.best}

    def restore(self, state: dict) -> None:
        self.said, self.stuck, self.best = list(state["said"]), state["stuck"], state["best"]

    def _once(self, kind: str, words: str) -> list[str]:
        if kind in self.said:
            return []
        self.said.append(kind)
        return [words]


def chance_recall(labels: np.ndarray, k: int = 1) -> float:
    """Recall@K of a random order: 1 − Π_{i<K} (1 − p / (n − 1 − i)), with p the others of the query's class."""
    counts, n = np.bincount(labels), len(labels)
    missed = np.ones(len(counts))
    for i in range(min(k, n - 1)):
        missed *= np.clip(1 - (counts - 1) / (n - 1 - i), 0, 1)
    return float((counts * (1 - missed)).sum() / n)
