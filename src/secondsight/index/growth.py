"""How an index follows what is on the disk: what is new is embedded, what moved is renamed, what is gone is removed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from secondsight.data.loading.decode import DecodeError
from secondsight.index import scan
from secondsight.index.catalogue import checksum, restored, roots_of, stored
from secondsight.index.comparison import compare
from secondsight.index.scan import Content, Found, Root
from secondsight.index.store import Change, Record, Store
from secondsight.progress import bar

BLOCK = 1024
"""Pictures between two commits: what a killed process has to do again at most."""

Encoder = Callable[[Sequence[str]], tuple[np.ndarray, np.ndarray, dict[int, DecodeError]]]
"""Files → vectors (m, dim), the numbers of the files they are of, and what is wrong with the others."""


@dataclass
class Growth:
    """What an ``add`` or an ``update`` did."""

    added: int = 0
    changed: int = 0  # new content under an old name
    moved: int = 0
    removed: int = 0
    relabelled: int = 0
    unchanged: int = 0
    copies: int = 0  # of the added and changed: the same bytes as another item, so that nothing was computed
    failures: dict[str, str] = field(default_factory=dict)  # file → cause
    unsteady: list[str] = field(default_factory=list)  # changed while they were read: left for the next update
    unlisted: list[str] = field(default_factory=list)  # folders that could not be listed; what is in them was kept

    def text(self) -> str:
        """For people, one line."""
        words = [
            f"{count:,} {what}"
            for count, what in (
                (self.added, "added"),
                (self.changed, "changed"),
                (self.moved, "moved"),
                (self.removed, "removed"),
                (self.relabelled, "relabelled"),
                (self.unchanged, "unchanged"),
                (len(self.failures), "set aside"),
                (len(self.unsteady), "changed while they were read (update again)"),
            )
            if count
        ]
        return ", ".join(words) or "nothing to do"

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.moved or self.removed or self.relabelled)


class Follower:
    """One pass over one root."""

    def __init__(self, store: Store, root: Root, found: Found, encode: Encoder, *, remove: bool):
        self.store, self.root, self.found, self.encode = store, root, found, encode
        self.compared = compare(store, root, found)
        self.known = self.compared.known
        self.growth = Growth(
            unchanged=self.compared.unchanged + len(self.compared.relabelled),
            relabelled=len(self.compared.relabelled),
            failures={root.file(path): cause for path, cause in self.compared.failed.items()},
            unlisted=[root.file(folder) for folder in found.unlisted],
        )
        self.gone: dict[bytes, list[str]] = {}  # content → names it had
        for path in self.compared.gone if remove else ():
            if not self._hidden(path):
                self.gone.setdefault(self.known[path].hash or b"", []).append(path)

    def _hidden(self, path: str) -> bool:
        """Whether a file is in a folder that could not be listed: then nobody knows that it is gone."""
        return any(path.startswith(folder) for folder in self.found.unlisted)

    def run(self) -> Growth:
        touched = {self.known[path].id: self._relabelled(path) for path in self.compared.relabelled}
        if touched:
            self.store.commit(Change(changed=touched))
        fresh = self.compared.fresh
        with bar(unit="pictures") as progress:
            task = progress.add_task("indexing", total=len(fresh), note="")
            for start in range(0, len(fresh), BLOCK):
                self._block(fresh[start : start + BLOCK])
                progress.update(task, completed=min(len(fresh), start + BLOCK))
        removed = [self.known[path].id for paths in self.gone.values() for path in paths]
        if removed:
            self.store.commit(Change(removed=removed))
        self.growth.removed = len(removed)
        return self.growth

    def _relabelled(self, path: str) -> Record:
        file = self.known[path]
        return self._record(path, Content(file.hash or b"", file.width, file.height))

    def _record(self, path: str, content: Content) -> Record:
        size, mtime = self.found.files[path]
        label = self.found.labels.get(path)
        if self.root.kind == "list" and path in self.known:
            label = self.known[path].label
        columns = self.found.columns.get(path, {})
        return Record(self.root.id, path, label, size, mtime, content.hash, content.width, content.height, columns)

    def _block(self, paths: Sequence[str]) -> None:
        """Read, sort out, embed and commit some files."""
        new: dict[str, Record] = {}
        moved: dict[int, Record] = {}
        overwritten: list[int] = []
        for path, content in scan.contents({path: self.root.file(path) for path in paths}):
            if isinstance(content, DecodeError):  # it may be readable tomorrow: said, not remembered
                self.growth.failures[content.source] = content.cause
                continue
            record, old = self._record(path, content), self.known.get(path)
            if old is not None and old.hash == content.hash:
                moved[old.id] = record  # only its time changed
                self.growth.unchanged += 1
            elif names := self.gone.get(content.hash):
                moved[self.known[names.pop()].id] = record
                self.growth.moved += 1
                overwritten += [old.id] if old is not None else []
            else:
                new[path] = record
        vectors, broken = self._vectors(new)
        steady = [path for path in new if path in vectors and self._steady(path)]
        replaced = [self.known[path].id for path in steady if path in self.known]
        self.growth.changed += len(replaced)
        self.growth.added += len(steady) - len(replaced)
        self.store.commit(
            Change(
                records=[new[path] for path in steady],
                vectors=np.stack([vectors[path] for path in steady]) if steady else None,
                removed=replaced + overwritten,
                changed=moved,
                failed=self._lasting(broken),
            )
        )

    def _steady(self, path: str) -> bool:
        """Whether a file is still what was scanned; otherwise its vector may be of something in between."""
        if scan.unchanged(self.root.file(path), *self.found.files[path]):
            return True
        self.growth.unsteady.append(self.root.file(path))
        return False

    def _vectors(self, new: Mapping[str, Record]) -> tuple[dict[str, np.ndarray], list[str]]:
        """A vector for every new file that can be decoded, and the files that never can be; each content is embedded
        once.
        """
        by_hash: dict[bytes, str] = {}
        for path, record in new.items():
            by_hash.setdefault(record.hash or path.encode(errors="surrogateescape"), path)
        known = self._stored(list(by_hash))
        todo = [path for digest, path in by_hash.items() if digest not in known]
        vectors, numbers, errors = self.encode([self.root.file(path) for path in todo]) if todo else ([], [], {})
        known |= {new[todo[i]].hash or b"": vector for i, vector in zip(numbers, vectors, strict=True)}
        failed = {new[todo[i]].hash: error for i, error in errors.items()}
        broken = []
        for path, record in new.items():
            if error := failed.get(record.hash):
                self.growth.failures[self.root.file(path)] = error.cause
                broken += [path] if error.lasting else []
        self.growth.copies += sum(r.hash in known for r in new.values()) - len(numbers)
        return {path: known[record.hash] for path, record in new.items() if record.hash in known}, broken

    def _stored(self, digests: Sequence[bytes]) -> dict[bytes, np.ndarray]:
        """Vectors of contents that the index has already."""
        with self.store.reading() as (database, snapshot):
            found = {}
            for digest in digests:
                row = database.execute("SELECT id FROM items WHERE hash = ? LIMIT 1", (digest,)).fetchone()
                if row is not None:
                    found[digest] = row[0]
            vectors = snapshot.vectors(snapshot.positions(np.array(list(found.values()), np.int64)))
        return dict(zip(found, vectors, strict=True))

    def _lasting(self, broken: Sequence[str]) -> list[tuple]:
        """Failures that will come again: the content is no picture, and has not changed meanwhile."""
        found = ((path, self.root.file(path), *self.found.files[path]) for path in broken)
        return [
            (self.root.id, path, size, mtime, self.growth.failures[file])
            for path, file, size, mtime in found
            if scan.unchanged(file, size, mtime)
        ]


def roots(store: Store) -> list[Root]:
    """Every root of an index."""
    with store.catalogue.reading() as database:
        rows = roots_of(database)
    return [Root(number, restored(spec) or "", kind, bool(labelled)) for number, spec, kind, labelled in rows]


def add_root(store: Store, spec: str, kind: str, labelled: bool) -> Root:
    """The root of that spec, remembered from now on."""
    for root in roots(store):
        if root.spec == spec and root.kind == kind:
            return root
    with store.writer(), store.catalogue.writing() as database:
        row = (stored(spec), kind, int(labelled))
        number = database.execute(
            "INSERT INTO roots (spec, kind, labelled, own) VALUES (?, ?, ?, ?)", (*row, checksum(*row))
        ).lastrowid
    return Root(number or 0, spec, kind, labelled)


def each(items: Sequence[Root], store: Store) -> Iterator[tuple[Root, Found, int]]:
    """Every root with what is there now and how many items the index has of it."""
    for root in items:
        with store.catalogue.reading() as database:
            known = database.execute("SELECT COUNT(*) FROM items WHERE root = ?", (root.id,)).fetchone()[0]
            listed = database.execute("SELECT path FROM items WHERE root = ? AND ?", (root.id, root.kind == "list"))
            paths = [restored(row[0]) or "" for row in listed]
        yield root, scan.walk(root, paths), known
