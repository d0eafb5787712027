"""Stages: cutting a plan where its partitioning changes, and running the pieces on messages."""
