"""Conformance suites: subclass one and implement its `make_` methods; pytest runs the tests.

Plain classes with plain asserts, so that importing them needs no pytest.
"""
