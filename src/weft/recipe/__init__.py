"""Recipes: the settings of each section, and how a YAML file is read and checked."""
