"""Pure functions behind the poolings."""
