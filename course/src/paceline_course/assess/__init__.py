"""The assessment: a submission is frozen, run in a box, and judged line by line; nothing that it says is believed."""
