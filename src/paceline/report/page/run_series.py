"""Where `evenly` is also found."""

from paceline.report.page.figures import evenly as evenly
