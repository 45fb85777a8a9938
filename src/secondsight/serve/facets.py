"""What a collection can be filtered by, and how many there are of each."""

from __future__ import annotations

from typing import Any

from secondsight.index import Index
from secondsight.index.catalogue import restored
from secondsight.terminal import plain

LABELS, VALUES = 2000, 50
"""Labels, and values of another column, that are listed; what has more is typed."""


def facets(index: Index) -> dict[str, Any]:
    """Labels with their counts, most frequent first; columns with their values, or their ends if they are numbers."""
    with index.store.reading() as (database, _):
        labels = database.execute(
            "SELECT label, COUNT(*) FROM items WHERE label IS NOT NULL GROUP BY label ORDER BY 2 DESC, 1 LIMIT ?",
            (LABELS,),
        ).fetchall()
        columns = []
        for name, field in database.execute("SELECT name, field FROM columns ORDER BY name").fetchall():
            # ``field`` is the catalogue's own name for the column, never the user's.
            values = [
                row[0]
                for row in database.execute(
                    f"SELECT DISTINCT {field} FROM items WHERE {field} IS NOT NULL ORDER BY 1 LIMIT ?", (VALUES + 1,)
                )
            ]
            ends = database.execute(f"SELECT MIN({field}), MAX({field}) FROM items").fetchone()
            numbers = bool(values) and all(isinstance(value, (int, float)) for value in values)
            columns.append(
                {
                    "name": plain(name),
                    "kind": "number" if numbers else "text",
                    "values": [] if len(values) > VALUES else [_for_json(value) for value in values],
                    "ends": [_for_json(end) for end in ends] if numbers else None,
                }
            )
    counted = [{"label": plain(str(restored(label))), "count": count} for label, count in labels]
    return {"labels": counted, "columns": columns}


def _for_json(value: Any) -> Any:
    return plain(str(restored(value))) if isinstance(value, (str, bytes)) else value
