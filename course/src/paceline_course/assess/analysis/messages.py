"""What is said of each kind of mistake in answers.toml: the likely cause, and where to look."""

from __future__ import annotations

from paceline_course.checking import Message

_GENERAL = {
    "unreadable": Message("the file of answers cannot be read", "the line named; a quotation mark that is missing"),
    "not-answered": Message(
        "it is not answered", "the key in answers.toml: its value is still empty, or it is missing"
    ),
    "no-number": Message("it is no number", "a number without quotes, without its unit, not infinite"),
    "no-name": Message("it is no name", 'a text in quotes, as in "large"'),
    "unknown-run": Message("config.toml has no configuration of that name", "the names of [[runs]], letter by letter"),
    "not-run": Message("the grader has nothing to hold the answer against", "why the training failed: parts A and B"),
}
_RATES = {
    "rates-floor": Message(
        "the last, smaller batch of an epoch is left out", "rounding up: it is a step like any other"
    ),
    "rates-per-process": Message("the batch of one process was taken", "a step stands for the batch of all: lab 8.1"),
    "rates-training": Message("these are the steps of the whole training", "steps of one epoch"),
    "rates-fraction": Message("there is no part of a step", "rounding up: the last batch has fewer samples"),
    "rates-base": Message("these are the steps with the base batch", "the batch of the chosen configuration"),
    "rates-steps": Message("an epoch has another number of steps", "samples over the batch, rounded up"),
    "rates-swapped": Message(
        "the two rules are swapped", "linear: rate times k; square root: rate times the root of k"
    ),
    "rates-workers": Message("k was taken for the number of processes", "how many times the base batch the batch is"),
    "rates-unscaled": Message("this is the base rate", "times k, or times its square root"),
    "rates-factor": Message("this is the factor, not the rate", "the base rate times the factor"),
    "rates-inverse": Message("the rate was divided where it is multiplied", "a larger batch gets a larger rate"),
    "rates-rule": Message("the rule gives another rate", "k = batch / base batch: lab 8.1"),
}
_RUNS = {
    "target-was-reached": Message("the run did get there", "two epochs running with at least the target"),
    "target-never": Message("the run never had the target for two epochs running", "-1 says so"),
    "target-other-unit": Message("this counts samples or steps", "the number in the column epoch"),
    "target-once": Message("there it had the target for the first time, and lost it again", "two epochs running"),
    "target-best": Message("this is the best or the last epoch", "the first time, not the best"),
    "target-epoch": Message("it was in another epoch", "right / counted of each line of log.csv, from the top"),
    "cheapest-few": Message("there are fewer configurations than the task asks for", "more [[runs]] in config.toml"),
    "cheapest-somebody": Message("some configurations did get there", "right / counted of each line of each log.csv"),
    "cheapest-failed": Message("this configuration could not be trained again", "whether it runs from config.toml"),
    "cheapest-never": Message(
        "this configuration never had the target for two epochs running", "right / counted of its log.csv"
    ),
    "cheapest-seconds": Message("this one needed the least time", "samples, which do not depend on the machine"),
    "cheapest-best": Message("this one is the most accurate", "which was the first to the target, counted in samples"),
    "cheapest-steps": Message("this one needed the fewest steps", "samples: steps times the batch"),
    "cheapest-run": Message("another one needed fewer", "the column samples, where the target was held"),
    "change-same-run": Message("before and after are the same", "two configurations"),
    "change-other-key": Message("the two do not differ in this key", "their entries in config.toml, key by key"),
    "change-several-keys": Message(
        "the two differ in more than one key, so nobody knows which of them did it",
        "exactly one key, besides the name: add a configuration in between",
    ),
    "change-small-batch": Message("one of them has a small batch", "a change that helps the large batch as it is"),
    "change-no-gap": Message("there is no gap to close", "keep a configuration whose large batch is worse"),
    "change-too-small": Message("the change closes less than half of the gap", "which other change did more"),
    "change-reversed": Message("before and after are swapped", "the better one comes after"),
}
_BYTES = {
    "bytes-numbers": Message("this counts numbers, not bytes", "a number in float32 has 4 bytes"),
    "bytes-float64": Message("these are 8 bytes a number", "a number in float32 has 4 bytes"),
    "bytes-bits": Message("these are bits", "bytes"),
    "bytes-unit": Message("it is in another unit", "bytes, not kilobytes or megabytes"),
    "bytes-all-processes": Message("this is what several processes hand over together", "what one does"),
    "bytes-shared": Message("the gradient was shared out over processes", "each has one for every weight"),
    "bytes-gradient": Message("the gradient has another size", "the sum of numel() over the weights, times 4"),
    "ring-one-phase": Message("this is one of the ring's two phases", "reduce-scatter, and then all-gather: lab 3"),
    "ring-all-processes": Message("this is what all processes send together", "what each sends: lab 3"),
    "ring-whole-tensor": Message("each message was taken for a whole gradient", "a message is one part of W: lab 3"),
    "ring-gradient": Message("this is the gradient itself", "how often a part of it travels: 2 (W - 1) times"),
    "ring-limit": Message("this is the limit for many processes", "2 (W - 1) / W, with W = 8"),
    "ring-one-message": Message("this is one message", "each process sends 2 (W - 1) of them"),
    "ring-other-number": Message("this is a ring of your own number of processes", "8 processes"),
    "bytes-ring": Message("a ring sends another number of bytes", "2 (W - 1) / W of the gradient: lab 3"),
}
_FORECAST = {
    "forecast-few-sizes": Message(
        "comm.csv is missing or has too few sizes", "measure.py, and both of its files in this folder"
    ),
    "forecast-no-steps": Message(
        "compute.csv is missing or has no batch around 32", "measure.py, and both of its files in this folder"
    ),
    "forecast-intercept": Message("this is the level of the line, which holds two latencies", "t = 2 alpha + n / beta"),
    "forecast-alpha-unit": Message("it is in another unit", "seconds"),
    "forecast-unweighted": Message("the fit looks at the large messages only", "relative errors: lab 7.2"),
    "forecast-alpha": Message("your times say another latency", "half of the time of a very small message: lab 7.2"),
    "forecast-beta-inverse": Message("this is the time of a byte", "one over it: bytes a second"),
    "forecast-beta-unit": Message("it is in another unit", "bytes a second"),
    "forecast-beta-bits": Message("these are bits a second", "bytes a second"),
    "forecast-beta": Message("your times say another bandwidth", "the slope of the line, and one over it: lab 7.2"),
    "forecast-compute-whole": Message("this is the step of a batch of 512", "each of the 16 processes has 32 of them"),
    "forecast-compute-divided": Message(
        "a sixteenth of a step of 512 is not a step of 32", "the line of compute.csv with 32: small batches use less"
    ),
    "forecast-compute-unit": Message("it is in another unit", "seconds"),
    "forecast-compute": Message("your times say another step", "the line of compute.csv with a batch of 32"),
    "forecast-needs-numbers": Message("there is nothing to predict from", "the three numbers above it, all positive"),
    "forecast-steps": Message("these are steps a second", "samples: 512 in a step"),
    "forecast-one-process": Message("this is the speed of one process", "all 16 together"),
    "forecast-no-messages": Message("no time of messages is in it", "compute and all-reduce, one after the other"),
    "forecast-not-divided": Message("each message was taken for a whole gradient", "n / (W beta): lab 7.3"),
    "forecast-one-latency": Message("the latency is in it once or twice", "2 (W - 1) messages, one after the other"),
    "forecast-one-phase": Message("this is one of the ring's two phases", "2 (W - 1) messages"),
    "forecast-numbers": Message("the gradient was counted in numbers", "its bytes"),
    "forecast-two-processes": Message("this is a ring of two processes", "W = 16"),
    "forecast-shared-again": Message("the time of 32 samples was divided once more", "it is that of one of the 16"),
    "forecast-all-busy": Message("the global batch was taken for that of one process", "512 of all, 32 of each"),
    "forecast-whole-batch": Message("each process was given the whole batch", "32 samples each"),
    "forecast-speed": Message("another speed follows from your numbers", "512 / (compute + all-reduce): lab 7.3"),
}
_EVIDENCE = {
    "evidence-same-run": Message("a configuration was compared with itself", "two configurations"),
    "evidence-not-chosen": Message("the chosen configuration is not among the two", "one of them has to be it"),
    "evidence-yes-or-no": Message("it is neither yes nor no", 'more_than_spread = "yes" or "no"'),
    "evidence-within-spread": Message("seeds alone make such differences", "the spread of the three seeds: lab 8.8"),
    "evidence-beyond-spread": Message("seeds hardly make such a difference", "the spread of the three seeds: lab 8.8"),
    "evidence-sign": Message("the sign is the other way round", "the mean of first minus that of second"),
    "evidence-fraction": Message("it is a fraction", "percentage points: 100 times as much"),
    "evidence-last-epoch": Message("these are the last epochs", "the highest level held for two epochs running"),
    "evidence-best-epoch": Message("these are single best epochs", "the highest level held for two epochs running"),
    "evidence-one-seed": Message("this is the difference with one seed", "the mean over the seeds 0, 1 and 2"),
    "evidence-points": Message("the difference is another one", "the held accuracy of each of the six, two means"),
}
_HANG = {
    "hang-no-rank": Message("there is no such rank", "0 to 3"),
    "hang-rank": Message("another rank has to be looked at", "who does otherwise than the three others"),
    "hang-no-cause": Message("this is none of the causes", "the list at the end of hang.txt: the word in front"),
    "hang-cause": Message("the cause is another one", "stacks, counts, and the line that each rank has printed last"),
    "hang-slow": Message("nothing hangs here", "the numbers of collectives in the two looks"),
    "hang-not-slow": Message("a slow job goes on", "the numbers of collectives in the two looks: they are the same"),
    "hang-not-network": Message("not all wait in the same collective", "the bytes and the lines at which each waits"),
    "hang-not-memory": Message("all four processes are there", "the stack of each rank"),
    "hang-not-exception": Message("no rank has printed an error", "the last printed line of each rank"),
    "hang-not-order": Message(
        "the ranks do not stand in two calls of one function", "in which function each rank waits"
    ),
    "hang-not-fewer": Message(
        "all have the same number of steps in an epoch", "the last printed line: step k of how many"
    ),
    "hang-not-own-stop": Message(
        "no rank has left its loop because of a number", "where each stands, and what it has printed"
    ),
    "hang-not-judges": Message(
        "it is not that one rank alone evaluates", "which epoch each rank is in, and what the others will call yet"
    ),
    "hang-not-saves": Message("no rank waits in the barrier of the saving", "in which function each rank waits"),
}
MESSAGES = _GENERAL | _RATES | _RUNS | _BYTES | _FORECAST | _EVIDENCE | _HANG
"""By id."""
