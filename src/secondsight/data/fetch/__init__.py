"""Datasets from the network: downloads, archives, and the folder they become."""
