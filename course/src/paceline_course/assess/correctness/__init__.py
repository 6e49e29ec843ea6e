"""Part A: the gate. Each line judges runs of a submission on sizes and worlds that are drawn for this grading."""
