"""Recipes: what a YAML file may say, section by section, and how it is read."""
