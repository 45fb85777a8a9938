"""``Index``: a collection of pictures that can be searched, added to, and kept in step with the disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from secondsight.calibration import Calibration
from secondsight.data.imageset import ImageSet
from secondsight.errors import ConfigError, DataError
from secondsight.index import duplicates, examination, facts, growth, items, regions, runtime, scan, thumbnails, upkeep
from secondsight.index import engine as engines
from secondsight.index import parts as parts_room
from secondsight.index.answer import Searcher
from secondsight.index.duplicates import Group
from secondsight.index.examination import Examination
from secondsight.index.filters import BUILT_IN, Where, compiled
from secondsight.index.growth import Follower, Growth
from secondsight.index.hits import Hits, Item
from secondsight.index.parts import Parts
from secondsight.index.queries import Query, checked, encoder, vectors_of
from secondsight.index.scan import Found, Root
from secondsight.index.store import Change, Record, Store
from secondsight.index.upkeep import MODEL

if TYPE_CHECKING:
    from secondsight.inference import Exported, Runtime
    from secondsight.model import Embedder


class Index:
    """An index on disk. ``index.create`` and ``index.open`` give one."""

    def __init__(self, path: str | Path, *, device: str = "cpu"):
        self.path = Path(path)
        self.device = device
        self.run: Callable[..., Any] | None = None  # in the model's place; see `use`
        self.exported: Exported | None = None  # the same, without torch
        self.choose: Callable[[], None] | None = None  # calls `use` when the first picture is to be embedded
        self.store = Store(self.path)
        self.searcher = Searcher(self.store)
        self._model: Embedder | None = None

    @property
    def parts(self) -> Parts | None:
        """Where it keeps several vectors a picture, so that small things are found; see ``parts``."""
        return self.searcher.parts(self.store.fact("parts") or {})

    def keep_parts(self, count: int) -> None:
        """Keep ``count`` vectors a picture, its whole among them; 1 for the whole alone. Pictures that are here already
        are embedded again, now; what is kept can be searched meanwhile.
        """
        parts_room.set_count(self.store, count)
        self._complete()

    def _complete(self) -> None:
        """Parts for pictures that lack them, and everything else that follows a change."""
        if (kept := self.parts) is not None:
            from secondsight.index import part_encoder

            part_encoder.fill(self, kept)
            kept.tidy()
            engines.maintain(kept.store)
        upkeep.maintain(self.store)

    def __len__(self) -> int:
        with self.store.reading() as (_, snapshot):
            return len(snapshot)

    def __repr__(self) -> str:
        return f"Index({str(self.path)!r}, {len(self):,} items of {self.dim} numbers)"

    @cached_property
    def dim(self) -> int:
        """Numbers a vector."""
        return self.store.fact("dim")

    @property
    def fingerprint(self) -> str | None:
        """Of the model whose vectors these are; None where they came without one."""
        return self.store.fact("model", {}).get("fingerprint")

    # Searching

    def search(
        self,
        query: Query | Sequence[Query],
        k: int = 10,
        *,
        where: Where | None = None,
        unlike: Sequence[Query] = (),
        exact: bool = False,
        rerank: str | None = None,
        region: Sequence[float] | np.ndarray | None = None,
    ) -> Hits:
        """The k items most similar to each query.

        Args:
            query: A path, the bytes of a file, a PIL image, pixels (H, W, 3) uint8, a vector (dim,), or the id of an
                item, which then does not find itself; or a list of these, or vectors (q, dim).
            k: Hits a query.
            where: Only items for which this holds, see ``filters``.
            unlike: Examples of what is not wanted; they count against every query.
            exact: Compare with every vector, whatever engine there is.
            rerank: ``"alpha-qe"`` or ``"k-reciprocal"``, a second look at the first answers; see ``rerank``.
            region: Only this part of the query pictures: a box (left, top, right, bottom) in fractions of the whole
                picture, or a mask (H, W) over it.
        """
        from secondsight.index.queries import combined

        found = vectors_of(query, self) if region is None else regions.queries(self, query, region)
        vectors, own = found.vectors, found.ids
        if len(unlike):
            against = vectors_of(list(unlike), self)
            vectors = np.stack([combined(v[None], against.vectors) for v in vectors])
            own = [[*ids, *(i for one in against.ids for i in one)] for ids in own]
        return self.searcher.search(vectors, k, where=where, leave_out=own, exact=exact, rerank=rerank)

    def like(
        self, likes: Sequence[Query], unlikes: Sequence[Query] = (), k: int = 10, *, where: Where | None = None
    ) -> Hits:
        """One answer to several examples, for and against; the examples themselves are left out."""
        from secondsight.index.queries import combined

        wanted = vectors_of(list(likes), self)
        against = vectors_of(list(unlikes), self)
        own = [i for ids in (*wanted.ids, *against.ids) for i in ids]
        vector = combined(wanted.vectors, against.vectors)
        return self.searcher.search(vector[None], k, where=where, leave_out=[own])

    def calibration(self) -> Calibration | None:
        """What scores mean here; None while there is too little to learn from."""
        given = self.store.fact("calibration")
        return None if not given else Calibration.from_dict(given)

    def calibrate(self) -> Calibration | None:
        """Learn again what scores mean, from the labels or from chance; done by ``add`` and ``update``, too."""
        return upkeep.calibrate(self.store)

    def duplicates(self, tiers: Sequence[str] = ("bytes", "picture"), *, subject: float | None = None) -> list[Group]:
        """Groups of duplicates by tier: "bytes", "picture", "subject"; see ``duplicates``."""
        return duplicates.duplicates(self, tiers=tiers, subject=subject)

    def dismiss(self, group: Group | Sequence[int]) -> None:
        """Remember that these items are no duplicates of each other."""
        duplicates.dismiss(self, group.ids if isinstance(group, Group) else group)

    # Items

    def item(self, id: int) -> Item:
        """One item by its id."""
        found = items.select(self.store, "id = ?", (int(id),))
        if not found:
            raise DataError(f"{self.path}: no item {id}; ids are what a search or `info` shows, and are not used again")
        return found[0]

    def items(self, where: Where | None = None, *, offset: int = 0, limit: int | None = None) -> list[Item]:
        """Items in the order of their ids."""
        with self.store.reading() as (database, _):
            condition = compiled(where, database)
        page = f"{condition.sql} ORDER BY id LIMIT {-1 if limit is None else int(limit)} OFFSET {int(offset)}"
        return items.select(self.store, page, condition.parameters)

    def count(self, where: Where | None = None) -> int:
        """How many items there are for which ``where`` holds."""
        with self.store.reading() as (database, _):
            return compiled(where, database).count(database)

    def find(self, path: str | Path) -> int | None:
        """The id of the item of that file, or None."""
        return items.find(self.store, path)

    def columns(self) -> list[str]:
        """What can be filtered by: the columns that every index has, then the user's own."""
        with self.store.reading() as (database, _):
            return [*BUILT_IN, *items.own_columns(database)]

    def vector(self, id: int) -> np.ndarray:
        """(dim,) float32 of unit length."""
        return self.vectors([id])[0]

    def vectors(self, ids: Sequence[int] | np.ndarray | None = None) -> np.ndarray:
        """(m, dim) float32 of unit length, in the order of ``ids``; None for all that live, in the order of ids."""
        with self.store.reading() as (_, snapshot):
            if ids is None:
                return snapshot.vectors(np.flatnonzero(snapshot.alive))
            wanted = np.asarray(ids, np.int64).reshape(-1)
            if not (here := snapshot.living(wanted)).all():
                raise DataError(f"{self.path}: no item {wanted[~here][0]}")
            return snapshot.vectors(snapshot.positions(wanted))

    def ids(self) -> np.ndarray:
        """Every id, ascending."""
        with self.store.reading() as (_, snapshot):
            return snapshot.ids[snapshot.alive]

    def thumbnail(self, id: int, side: int = 256) -> bytes:
        """A JPEG of the item, ``side`` pixels along its longer side; kept, so that the next time is quick."""
        return thumbnails.thumbnail(self.path, self.item(id), side)

    def map(self) -> tuple[np.ndarray, np.ndarray]:
        """Where the map puts the items: ids (m,) and places (m, 2); items that came later have none."""
        return items.places(self.store)

    def set_map(self, ids: Sequence[int] | np.ndarray, places: np.ndarray) -> None:
        """Keep a layout: ids (m,) and places (m, 2). It takes the place of the one before."""
        items.set_places(self.store, ids, places)

    # Changing

    def add(self, images: ImageSet | str | Path | Sequence[str | Path], *, labelled: bool | None = None) -> Growth:
        """Embed pictures and add them; those that are here already and have not changed are left as they are.

        Args:
            images: A folder, a table or ``NAME:PATH``, which ``update`` will look at again; or an ``ImageSet`` or a
                list of files, which it will only look at for changes.
            labelled: Whether the first-level folders of a folder are classes; None: if no picture is beside them.
        """
        with self.store.writer():
            root, found = self._root(images, labelled)
            if found.unlisted and "" in found.unlisted:
                raise DataError(f"{root.base}: cannot be listed; check that it is a folder you may read")
            if not found.files:
                raise DataError(
                    f"{root.base}: no images here (looked for .jpg, .png, .webp and others, in every folder)"
                )
            grown = Follower(self.store, root, found, encoder(self), remove=False).run()
            self._complete()
            return grown

    def _root(self, images: Any, labelled: bool | None) -> tuple[Root, Found]:
        if isinstance(images, (str, Path)):
            spec, kind = scan.absolute(images)
            found = scan.walk(Root(-1, spec, kind, True))
            if kind == "folder":
                labelled = scan.has_labels(found.files) if labelled is None else labelled
                found.labels = found.labels if labelled else {}
            return growth.add_root(self.store, spec, kind, bool(labelled or kind != "folder")), found
        if not isinstance(images, ImageSet):
            paths = [os.path.abspath(path) for path in images]
            images = ImageSet("files", Path(os.sep), tuple(paths))
        root = growth.add_root(self.store, os.path.abspath(images.root), "list", images.labels is not None)
        found = scan.walk(root, images.paths)
        if images.labels is not None:
            found.labels = {p: images.classes[c] for p, c in zip(images.paths, images.labels, strict=True)}
        return root, found

    def add_vectors(
        self,
        vectors: np.ndarray,
        *,
        paths: Sequence[str] | None = None,
        labels: Sequence[str] | None = None,
        columns: Mapping[str, Sequence[Any]] | None = None,
        fingerprint: str | None = None,
    ) -> np.ndarray:
        """Add vectors (n, dim) that were made elsewhere; gives their ids.

        ``fingerprint`` is that of the model that made them: another model's are refused.
        """
        if fingerprint is not None:
            self.check_fingerprint(fingerprint, "these vectors")
        vectors = checked(np.asarray(vectors, np.float32), self.dim, "vectors to add")
        n, columns = len(vectors), columns or {}
        for what, values in {"paths": paths, "labels": labels, **columns}.items():
            if values is not None and len(values) != n:
                raise DataError(f"{n:,} vectors, but {len(values):,} {what}")
        records = [
            Record(
                path=None if paths is None else paths[i],
                label=None if labels is None or labels[i] is None else str(labels[i]),
                columns={name: values[i] for name, values in columns.items()},
            )
            for i in range(n)
        ]
        return self.store.commit(Change(records=records, vectors=vectors))

    def remove(self, ids: Sequence[int] | np.ndarray) -> int:
        """Forget items; gives how many there were. Their files stay where they are, and the next ``update`` brings
        items back whose files still are in a folder of the index.
        """
        before = len(self)
        self.store.commit(Change(removed=[int(i) for i in np.asarray(ids, np.int64).reshape(-1)]))
        if (kept := self.parts) is not None:
            kept.tidy()
        return before - len(self)

    def update(self, *, gone: bool = False) -> Growth:
        """Follow the folders: embed what is new or changed, rename what moved, remove what is gone.

        ``gone``: a folder that is not there at all means that its pictures are gone, too; otherwise it is an error.
        """
        total = Growth()
        with self.store.writer():
            for root, found, known in growth.each(growth.roots(self.store), self.store):
                if not gone:
                    scan.require_root(root, found, known, self.path)
                found.unlisted = [folder for folder in found.unlisted if not (gone and folder == "")]
                one = Follower(self.store, root, found, encoder(self), remove=True).run()
                for name, value in vars(one).items():
                    setattr(
                        total,
                        name,
                        getattr(total, name) | value if isinstance(value, dict) else getattr(total, name) + value,
                    )
            self._complete()
        return total

    def compact(self) -> None:
        """Rewrite the vectors as one segment without those of removed items."""
        self.store.compact()
        if (kept := self.parts) is not None:
            kept.store.compact()

    def build(
        self,
        *,
        memory: int | None = None,
        recall: float | None = None,
        structure: str | None = None,
        engine: str | None = None,
    ) -> dict[str, Any]:
        """Build what answers searches from the vectors; gives what it is, why, and how good. Nothing is embedded.

        Args:
            memory: Bytes that it may take, see ``structures``.
            recall: What to tune it to.
            structure: One by name, instead of the one that fits.
            engine: ``milvus://HOST:PORT/COLLECTION``, or ``faiss`` to come back.

        What is not given is what was given the last time.
        """
        wanted = {"memory": memory, "recall": recall, "structure": structure, "engine": engine}
        return parts_room.each_engine(engines.build, self.store, self.parts, **wanted)

    def wish(
        self,
        *,
        memory: int | None = None,
        recall: float | None = None,
        structure: str | None = None,
        engine: str | None = None,
    ) -> None:
        """Say what ``build`` should make when the time comes; see there."""
        wanted = {"memory": memory, "recall": recall, "structure": structure, "engine": engine}
        parts_room.each_engine(engines.wish, self.store, self.parts, **wanted)

    # The model

    def model(self) -> Embedder:
        """The model of this index: its own copy, checked."""
        if self._model is None:
            from secondsight.model import load

            if self.fingerprint is None:
                raise DataError(f"{self.path}: an index of vectors without a model; search it by vector or by id")
            model = load(self.path / MODEL, device=self.device)
            self.check_fingerprint(model.fingerprint(), f"the model in {self.path / MODEL}")
            self._model = model
        return self._model

    def use(self, run: Runtime | Exported) -> None:
        """Let a runtime of ``secondsight.inference``, or an exported file, embed in the model's place; refused where
        its vectors are not those that are here, to 1e-3.
        """
        runtime.use(self, run)

    def check_runtime(self, name: str) -> None:
        """Refuse a runtime whose vectors may not stand beside these."""
        runtime.check(self, name)

    def check_fingerprint(self, fingerprint: str, what: str) -> None:
        """Refuse what another model made."""
        own = self.store.fact("model", {})
        if own.get("fingerprint") != fingerprint:
            raise ConfigError(
                f"{what}: of model {fingerprint[:16]}, but {self.path} holds vectors of model "
                f"{(own.get('fingerprint') or 'unknown')[:16]} ({own.get('description', 'no description')}); vectors "
                "of different models cannot be compared: make another index with --model"
            )

    def info(self) -> dict[str, Any]:
        """What this index is: size, model, bytes a vector, where it came from."""
        return facts.info(self)

    def check(self, *, repair: bool = False) -> Examination:
        """Whether every checksum and every number is right; see ``examination``."""
        found = examination.check(self, repair=repair)
        return found if (kept := self.parts) is None else kept.check(found, repair=repair)

    def close(self) -> None:
        """Let go of the files of this thread."""
        self.store.catalogue.close()
