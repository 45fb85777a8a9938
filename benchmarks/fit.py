"""What fitting JCF to the images themselves brings over averaging, without labels and without training.

    python benchmarks/fit.py DATA [DATA …] --classes 40 --images 25

Recall@1 of every image among all others, labels used to judge only. The network's features are computed once and pooled
in every way.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

from measure import console, table
from secondsight.data import ImageSet
from secondsight.data import open as open_images
from secondsight.embed import features
from secondsight.evaluate import retrieval
from secondsight.fit import JCF
from secondsight.memory import keep_freed
from secondsight.model import Embedder, published


def sample(images: ImageSet, classes: int, each: int) -> ImageSet:
    """The last ``classes`` classes, ``each`` images of each."""
    chosen = images.select_classes(images.classes[-classes:])
    labels = chosen.require_labels()
    return chosen.subset(np.concatenate([np.flatnonzero(labels == c)[:each] for c in range(len(chosen.classes))]))


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", help="folders with one subfolder per class, tables, or NAME:PATH")
    parser.add_argument("--classes", type=int, default=40)
    parser.add_argument("--images", type=int, default=25, help="of each class")
    parser.add_argument("--counts", type=int, nargs="*", default=[64, 256, 1024], help="images to fit to")
    options = parser.parse_args()
    if not options.data:
        console.print("needs labelled images to judge on, see --help")
        return
    keep_freed()
    rows = table("Recall@1 in %", "", "images", "average", *(f"jcf-32-8 fitted to {n}" for n in options.counts))
    for spec in options.data:
        images = sample(open_images(spec), options.classes, options.images)
        average = published("efficientnet-lite0")
        found = [f.half() for f in features(average, images, count=len(images))]
        grid, local = average.backbone.grid(average.size, average.size), torch.cat(found)
        assert len(local) == len(images), "some images cannot be read"
        labels = np.asarray(images.require_labels())

        def judged(model: Embedder, local=local, grid=grid, labels=labels) -> str:
            z = torch.cat([model.normalise(model.pool(part.float(), grid=grid)) for part in local.split(64)])
            return f"{100 * retrieval(z.numpy(), labels, bootstrap=0).recall[1]:.1f}"

        figures = [judged(average)]
        for count in options.counts:
            torch.manual_seed(0)
            model = Embedder.build(
                backbone="efficientnet-lite0", pooling="jcf-32-8", transform="resize-crop", **JCF
            ).eval()
            chosen = np.unique(np.linspace(0, len(local) - 1, min(count, len(local))).round().astype(int))
            model.fit([part.float() for part in local[chosen].split(32)], grid=grid)
            figures.append(judged(model))
        rows.add_row(spec, f"{len(images):,}", *figures)
    console.print(rows)


if __name__ == "__main__":
    main()
