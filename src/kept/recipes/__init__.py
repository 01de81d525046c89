"""Recipes: each compiles one kind of spec into a plan."""
