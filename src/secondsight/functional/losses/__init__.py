"""Pure functions behind the losses."""
