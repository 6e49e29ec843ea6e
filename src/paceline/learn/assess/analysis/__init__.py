"""Part D: a learner's reading of their own runs, judged by the grader's runs of the same configurations."""

from paceline.learn.assess.analysis.facts import Facts, Speed, reruns
from paceline.learn.assess.analysis.judge import judge
from paceline.learn.assess.analysis.messages import MESSAGES

__all__ = ["MESSAGES", "Facts", "Speed", "judge", "reruns"]
