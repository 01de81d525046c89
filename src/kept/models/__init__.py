"""Clients for language and embedding models."""
