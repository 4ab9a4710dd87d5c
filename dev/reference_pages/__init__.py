"""``dev/reference``: the API reference, generated from docstrings.

The source is read with griffe and never imported, so Airflow and Spark need not be loaded, and what a page
says cannot depend on the machine that wrote it. ``public_api`` says what is public, ``areas`` which page
shows it, ``docstrings`` and ``markup`` turn a docstring into Markdown, ``entries`` puts a name's parts
together and ``pages`` the pages.
"""
