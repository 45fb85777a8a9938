"""The demo: pictures become a collection without labels, are searched and explained; then a model is trained on others,
and what that bought is shown. Emoji, or a folder of one's own.
"""

from secondsight.demo.drawings import VENDORS, pictures, table
from secondsight.demo.side_by_side import ModelAnswers, side_by_side
from secondsight.demo.subject import Subject, emoji, evaluate_collection, folder

__all__ = [
    "VENDORS",
    "ModelAnswers",
    "Subject",
    "emoji",
    "evaluate_collection",
    "folder",
    "pictures",
    "side_by_side",
    "table",
]
