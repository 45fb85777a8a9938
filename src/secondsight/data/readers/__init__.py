"""From a folder, a table or a published dataset to an ``ImageSet``: one file a layout."""
