"""A grade as one HTML page: the result, what to do next, every line with its evidence, and what all of it rests on."""

from paceline.learn.assess.page.render import render_grade, write_page

__all__ = ["render_grade", "write_page"]
