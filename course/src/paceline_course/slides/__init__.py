"""Slides: decks written as Markdown, filled from recorded runs, built as HTML, PPTX and PDF."""
