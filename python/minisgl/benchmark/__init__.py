"""Benchmarks: ``offline`` for full load without a server, ``client`` for a server under a given load."""
