"""Conformance suites: subclass one, say how to make what it is to test, and pytest does the rest.

Plain classes with plain asserts, so that importing them needs no pytest.
"""
