"""The demo: pictures become a collection without labels, are searched and explained; then a model is trained on others,
and what that bought is shown. Emoji, or a folder of one's own.
"""

from secondsight.demo.drawings import VENDORS, pictures, table
from secondsight.demo.sheet import Block, contact_sheet
from secondsight.demo.subject import Subject, emoji, folder, judged

__all__ = ["VENDORS", "Block", "Subject", "contact_sheet", "emoji", "folder", "judged", "pictures", "table"]
