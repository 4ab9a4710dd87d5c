"""Builds the documentation as a site with a folder a release; ``docs/conf.py`` says how its pages look."""
