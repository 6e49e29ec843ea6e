"""Part D: a learner's reading of their own runs, judged by the grader's runs of the same configurations."""
