"""Decides a vertex before it runs: a module for what it reads from sources, from exchanges, and for what it writes."""
