"""The datasets by name: what they hold, where they come from, and which file reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from secondsight.data.imageset import ImageSet
from secondsight.data.readers import cars, cub, folder, sop, table


@dataclass(frozen=True)
class Count:
    """How many classes and images a part of a dataset has."""

    classes: int
    images: int


@dataclass(frozen=True)
class Archive:
    """A file to download. ``checksums`` are ``algorithm:hex``; none where no two independent sources agree on one."""

    name: str
    urls: tuple[str, ...] = ()
    size: int | None = None
    checksums: tuple[str, ...] = ()


@dataclass(frozen=True)
class Dataset:
    """One row of ``secondsight data list``."""

    name: str
    title: str
    find: Callable[[Path], Path | None]  # the dataset's own root at or just below a path, or None
    read: Callable[[Path], ImageSet]
    parts: Mapping[str, Count] = field(default_factory=dict)  # the zero-shot split, checked on opening
    part_names: Mapping[str, str] = field(default_factory=dict)  # in words: {"train": "classes 1–100"}
    archives: tuple[Archive, ...] = ()
    mirrors: tuple[str, ...] = ()  # what to pass to --url or --from where the official link is dead
    link: str = ""  # what is known of the official link
    licence: str = ""
    homepage: str = ""


# Checksums: Caltech publishes CUB's; those of SOP and Cars are what torchvision, TensorFlow Datasets and
# pytorch-metric-learning's benchmark recorded when the official links still answered. Sizes are TensorFlow Datasets'.
_CUB = Archive(
    "CUB_200_2011.tgz",
    urls=(
        "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz?download=1",
        "https://s3.amazonaws.com/fast-ai-imageclas/CUB_200_2011.tgz",
    ),
    size=1_150_585_339,
    checksums=(
        "md5:97eceeb196236b17998738112f37df78",
        "sha256:0c685df5597a8b24909f6a7c9db6d11e008733779a671760afef78feb49bf081",
    ),
)
_SOP = Archive(
    "Stanford_Online_Products.zip",
    urls=(
        "http://ftp.cs.stanford.edu/cs/cvgl/Stanford_Online_Products.zip",
        "https://drive.usercontent.google.com/download?id=1TclrpQOF_ullUP99wk_gjGN8pKvtErG8&export=download&confirm=t",
    ),
    size=3_083_860_082,
    checksums=("sha256:b04fa78210e69fab050ce73939550e1cd0f96890bdd98ec9fee732c3b756ef48",),
)
_CARS = (
    Archive("car_ims.tgz", checksums=("md5:d5c8f0aa497503f355e17dc7886c3f14",)),
    Archive("cars_annos.mat", checksums=("md5:b407c6086d669747186bd1d764ff9dbc",)),
    Archive("cars_train.tgz", size=979_269_282, checksums=("md5:065e5b463ae28d29e77c1b4b166cfe61",)),
    Archive("cars_test.tgz", size=977_350_468, checksums=("md5:4ce7ebf6a94d07f1952d94dd34c4d501",)),
    Archive("car_devkit.tgz", size=330_960, checksums=("md5:c3b158d763b6e2245038c8ad08e45376",)),
    Archive("cars_test_annos_withlabels.mat", size=185_758, checksums=("md5:b0a2b23655a3edd16d84508592a98d10",)),
)

# Recognition of a plain path tries them in this order; a folder of class folders is what is left.
DATASETS: dict[str, Dataset] = {
    "cub200": Dataset(
        "cub200",
        "Caltech-UCSD Birds 200-2011",
        cub.find,
        cub.read,
        parts={"train": Count(100, 5_864), "test": Count(100, 5_924)},
        part_names={"train": "classes 1–100", "test": "classes 101–200"},
        archives=(_CUB,),
        link="official",
        licence="research and education, not commercial; the photographs belong to their takers",
        homepage="https://www.vision.caltech.edu/datasets/cub_200_2011/",
    ),
    "cars196": Dataset(
        "cars196",
        "Stanford Cars",
        cars.find,
        cars.read,
        parts={"train": Count(98, 8_054), "test": Count(98, 8_131)},
        part_names={"train": "classes 1–98", "test": "classes 99–196"},
        archives=_CARS,
        mirrors=(
            "--url https://www.kaggle.com/api/v1/datasets/download/jutrera/stanford-car-dataset-by-classes-folder"
            "  (class folders; pytorch-metric-learning's source)",
            "--url http://ftp.cs.stanford.edu/cs/cvgl/CARS196.zip  (car_ims, cars_annos.mat; the authors' group)",
            "--from FILE after a download by hand from https://www.kaggle.com/datasets/rickyyyyyyy/torchvision-stanford-cars"
            "  (the mirror that torchvision's documentation names)",
            "--from car_ims.tgz --from cars_annos.mat  (the official files, if someone near you still has them)",
        ),
        link="dead since 2023",
        licence="research, not commercial (ImageNet's terms)",
        homepage="https://ai.stanford.edu/~jkrause/cars/car_dataset.html",
    ),
    "sop": Dataset(
        "sop",
        "Stanford Online Products",
        sop.find,
        sop.read,
        parts={"train": Count(11_318, 59_551), "test": Count(11_316, 60_502)},
        part_names={"train": "Ebay_train.txt", "test": "Ebay_test.txt"},
        archives=(_SOP,),
        link="official",
        licence="MIT for the lists; the photographs belong to eBay's sellers",
        homepage="https://cvgl.stanford.edu/projects/lifted_struct/",
    ),
    "table": Dataset("table", "CSV, TSV or Parquet: path, label[, split][, group]", table.find, table.read),
    "folder": Dataset(
        "folder", "your own folder: a subfolder per class, or flat (no labels)", folder.find, folder.read
    ),
}
